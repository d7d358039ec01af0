"""predict_population: a whole family of architectures at once, for a search that wants many answers and no wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.readable import short
from forerun.api.questions import check
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.family import Family, learn
from forerun.graph.ir import Graph
from forerun.graph.profile import profile
from forerun.measure.assumed_host import assume
from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws.bounds import ask
from forerun.predictors.registry import load_predictor
from forerun.runtimes.registry import as_run
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

#: A setting with fewer values than this is taken value by value; more are tried as one law of sizes.
_FEW = 4
_CHECKED = 3  # members of every structure that are captured to check the law
_AT_ONCE = 2_000  # members in one matrix
_MOST_CAPTURES = 2_000


def predict_population(
    model: str | Callable[..., Any],
    settings: Mapping[str, Sequence[int]],
    device: str | Path | Device | dict[str, Any],
    *,
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    **workload: Any,
) -> pd.DataFrame:
    """Latency, device time, energy and work of every member of a family, one row each.

    `model` is a name with settings in braces ("cnn:depth={depth},filters={filters}") or a function that makes a model
    of them. `settings` holds a column of whole numbers for each; the columns `batch` and `seq_len` are those of the
    workload. Members that differ in sizes alone share a few captures; the law of their sizes is checked against members
    captured in full. Further keywords are those of `predict`.
    """
    import pandas as pd

    table = pd.DataFrame(_columns(settings))
    if table.empty:
        return table
    chosen = load_device(device)
    assumed = assume(host)
    estimator = load_predictor(predictor).with_settings(
        confidence=confidence, host_slowness=assumed.slowness, host_deviation=assumed.deviation
    )
    members = _Members(model, workload)
    check(members.workload(table.iloc[0].to_dict()), chosen, estimator)
    answers: dict[str, np.ndarray] = {}
    for rows, family in members.structures(table):
        work = members.workload(table.loc[rows[0]].to_dict())
        values, place = _distinct(table.loc[rows, list(family.names)])
        parts = []
        for first in range(0, len(values), _AT_ONCE):
            subset = values[first : first + _AT_ONCE]
            columns = profile(family.graph, work.dtype, np.arange(len(subset)), family.shapes(subset))
            predicted = ask(estimator, columns, [chosen], work)
            flops, moved = columns.work
            parts.append(
                _answers(predicted.times, predicted.spread("latency_ms")) | {"flops": flops.sum(axis=0), "bytes": moved}
            )
        for name in parts[0]:
            answers.setdefault(name, np.empty(len(table)))[rows] = np.concatenate([part[name] for part in parts])[place]
    return pd.concat([table, pd.DataFrame(answers)], axis=1)


def _columns(settings: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """The columns of a population, all as long as there are members."""
    if not isinstance(settings, Mapping):
        raise ForerunError(f"settings must be a column of whole numbers for each setting, got {short(settings)}")
    columns = {name: np.asarray(column) for name, column in settings.items()}
    for name, column in columns.items():
        if column.ndim != 1 or (column.size and not np.issubdtype(column.dtype, np.integer)):
            raise ForerunError(f"{name} must be a column of whole numbers, one for each member")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ForerunError(f"all columns must have one number for each member, and they have: {words}")
    return columns


def _distinct(members: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The settings that differ [distinct, names], and which of them each member has: equal members are predicted once,
    and of a million in a search many are equal."""
    names = list(members)
    if not names:
        return np.empty((1, 0)), np.zeros(len(members), dtype=int)
    place = members.groupby(names, sort=False).ngroup().to_numpy()  # numbered as they first appear
    return members.drop_duplicates().to_numpy(dtype=float), place


def _answers(times: Times, spread: np.ndarray) -> dict[str, np.ndarray]:
    latency = times.latency_ms[:, 0]
    return {
        "latency_ms": latency, "latency_low_ms": latency * spread[:, 0, 0],
        "latency_high_ms": latency * spread[:, 0, 1], "device_ms": times.device_ms[:, 0],
        "host_ms": times.host_ms[:, 0], "energy_j": times.energy_j[:, 0],
    }  # fmt: skip


class _Members:
    """Members of one population: how each is captured, and which of them share a structure."""

    def __init__(self, model: str | Callable[..., Any], workload: Mapping[str, Any]) -> None:
        self.model, self.given = model, dict(workload)
        self.captures = 0

    def workload(self, member: Mapping[str, int]) -> Workload:
        of_member = {name: int(member[name]) for name in ("batch", "seq_len") if name in member}
        rest = {name: int(value) for name, value in member.items() if name not in of_member}
        return Workload(self._made(rest), **{**self.given, **of_member})

    def _made(self, settings: Mapping[str, int]) -> Any:
        if isinstance(self.model, str):
            try:
                return self.model.format(**settings)
            except (KeyError, IndexError) as error:
                raise ForerunError(f"{self.model} asks for a setting that has no column: {error}") from error
        try:
            return self.model(**settings)
        except Exception as error:  # another's function may raise anything
            given = ", ".join(f"{name}={value}" for name, value in settings.items())
            raise ForerunError(f"no model could be made of {given}: {type(error).__name__}: {error}") from error

    def capture(self, member: Mapping[str, int]) -> Graph:
        self.captures += 1
        if self.captures > _MOST_CAPTURES:
            raise ForerunError(f"this population has more than {_MOST_CAPTURES:,} different structures")
        work = self.workload(member)
        return as_run(load_graph(work), work.runtime)

    def structures(self, table: pd.DataFrame) -> Iterator[tuple[np.ndarray, Family]]:
        """(rows, family) for each structure: settings that decide it are taken value by value."""
        many = {str(name) for name in table if table[name].nunique() >= _FEW}
        single = table["batch"] == 1 if "batch" in table else np.zeros(len(table), dtype=bool)
        for part in (table[single], table[~single]):  # a batch of one may run other kernels
            if len(part):
                yield from self._split(part, many)

    def _split(self, table: pd.DataFrame, smooth: set[str]) -> Iterator[tuple[np.ndarray, Family]]:
        fixed = [name for name in table if name not in smooth]
        groups = table.groupby(fixed, sort=False) if fixed else [((), table)]
        for _, members in groups:
            family, blamed = self._law(members, smooth)
            if family is not None:
                yield members.index.to_numpy(), family
            else:
                yield from self._split(members, smooth - blamed)

    def _law(self, members: pd.DataFrame, smooth: set[str]) -> tuple[Family | None, set[str]]:
        """The law of a group that differs in `smooth` settings, or else the settings to blame for there being none."""
        first = members.iloc[0].to_dict()
        ranges = {n: (int(members[n].min()), int(members[n].max())) for n in members if n in smooth}
        ranges = {n: (low, high) for n, (low, high) in ranges.items() if low < high}

        def capture(sizes: Mapping[str, int]) -> Graph:
            return self.capture({**first, **sizes})

        try:
            family = learn(capture, ranges)
            if family is not None and (not ranges or self._holds(family, members)):
                return family, set()
        except ForerunError:
            if not ranges:
                raise
        return None, self._blamed(capture, ranges, members) or set(ranges)

    def _holds(self, family: Family, members: pd.DataFrame) -> bool:
        drawn = members.sample(min(_CHECKED, len(members)), random_state=0)
        return all(
            family.agrees(self.capture(member.to_dict()), [int(member[n]) for n in family.names])
            for _, member in drawn.iterrows()
        )

    @staticmethod
    def _blamed(
        capture: Callable[[Mapping[str, int]], Graph], ranges: Mapping[str, tuple[int, int]], members: pd.DataFrame
    ) -> set[str]:
        """The settings that alone already break a law."""
        out = set()
        least = {name: low for name, (low, _) in ranges.items()}
        for name, (low, high) in ranges.items():
            values = sorted(members[name].unique())
            middle = int(values[len(values) // 2])
            try:
                alone = learn(lambda sizes: capture({**least, **sizes}), {name: (low, high)})
                holds = alone is not None and alone.agrees(capture({**least, name: middle}), [middle])
            except ForerunError:
                holds = False
            if not holds:
                out.add(name)
        return out
