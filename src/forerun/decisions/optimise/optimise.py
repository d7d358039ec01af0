"""Optimise: what to change so that a model runs better, each change predicted, singly and together.

Nothing is claimed whose interval includes no gain (advice/gains.py); together, the best claimed change is made, all are
predicted again on top of it, and so on until none is left to claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun._util.rendered import Rendered
from forerun.advice.gains import CLAIMED, Gain
from forerun.api.predict import explain, predict_workload
from forerun.api.questions import Captures, given_model, profiled
from forerun.decisions.optimise.changes import PROPOSERS, Asked, Case, Change, LeftOut
from forerun.decisions.optimise.commands import predict_command
from forerun.decisions.optimise.comparison import Answer, compared
from forerun.decisions.optimise.goals import GOALS, Goal, goal_of
from forerun.decisions.optimise.graph_changes import GRAPH_PROPOSERS, Finding, findings
from forerun.decisions.optimise.other_devices import OtherDevice, other_devices
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.prediction import Prediction
from forerun.predictors.base import Predictor
from forerun.predictors.laws import gain_errors
from forerun.predictors.registry import load_predictor, saved_folder
from forerun.workload import Workload

#: The most steps of a greedy combination.
MOST_STEPS = 8
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class Line:
    """One change, tried on its own: what it gains, what it costs, and how it is done."""

    name: str
    kind: str
    where: str  # settings | network
    verdict: str  # claimed | cannot tell | worse | does not fit
    gain: Gain
    interval_from: str  # what the interval of the gain is based on
    code: str
    risk: str
    before: Prediction
    after: Prediction
    case: Case
    shared_by: int = 1  # calls that run side by side on one device: slices of a GPU

    @property
    def memory_change_mb(self) -> float | None:
        """Additional device memory of the change; negative: it saves memory. Every slice holds its own call."""
        before, after = self.before.memory_mb, self.after.memory_mb
        return None if before is None or after is None else self.shared_by * after.value - before.value

    @property
    def workload(self) -> Workload:
        """The workload that was predicted; its model is a changed graph where the network is changed."""
        return self.case.predicted()

    def to_dict(self) -> dict[str, Any]:
        words = {
            name: getattr(self, name) for name in ("name", "kind", "where", "verdict", "interval_from", "code", "risk")
        }
        numbers = self.after.to_dict()
        names = (
            "device",
            "workload",
            "latency_ms",
            "device_ms",
            "throughput",
            "memory_mb",
            "energy_j",
            "cost_usd",
            "bound",
        )
        return {
            **words, "gain": vars(self.gain), "memory_change_mb": self.memory_change_mb,
            "fit": self.after.fit_sentence() or None, "prediction": {name: numbers[name] for name in names},
        }  # fmt: skip


@dataclass(frozen=True)
class Optimisation(Rendered):
    """What to change: every change on its own, then together; what was not tried, with reasons."""

    goal: str
    now: Prediction
    lines: tuple[Line, ...]
    together: tuple[Line, ...]  # steps; each gain is cumulative, over the case as it is
    left_out: tuple[LeftOut, ...]
    findings: tuple[Finding, ...]
    other_devices: tuple[OtherDevice, ...]
    command: str | None  # predicts the case with all changes of settings
    notes: tuple[str, ...] = ()
    confidence: float = field(default=0.9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "goal": self.goal, "confidence": self.confidence, "now": self.now.to_dict(),
            "changes": [line.to_dict() for line in self.lines], "together": [line.to_dict() for line in self.together],
            "command": self.command, "left_out": [vars(entry) for entry in self.left_out],
            "in_the_network": [vars(entry) for entry in self.findings],
            "other_devices": [entry.to_dict() for entry in self.other_devices], "notes": list(self.notes),
        }  # fmt: skip


def optimise(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    goal: str = "latency",
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    region: str | None = None,
    instance: str | None = None,
    **settings: Any,
) -> Optimisation:
    """What to change so that `model` runs better on `device`, each change with its predicted gain and interval.

    `goal` is latency (of a call at its batch), throughput, memory, energy or cost (per sample, so that the batch may
    grow). `settings` are those of a workload (batch, dtype, mode ...). All numbers are predictions: changes are
    not measured, so the baseline is predicted too.
    """
    wanted = goal_of(goal)
    case = Case(given_model(model, settings), load_device(device))
    tried = _Trial(case, wanted, predictor, confidence, host, region, instance)
    lines, left_out = tried.all_of(case)
    together = _together(tried, lines)
    notes = [] if tried.now.fit is None or tried.now.fit.fits else [f"as it is, it {tried.now.fit_sentence()}"]
    last = together[-1].case if together else None
    explained = explain(case.predicted().model, case.device, predictor=predictor, host=host, **_settings(case.workload))
    return Optimisation(
        goal=goal, now=tried.now, lines=tuple(_ordered(lines)), together=tuple(together), left_out=tuple(left_out),
        findings=tuple(findings(explained, case.workload.mode == "training")),
        other_devices=tuple(tried.elsewhere()),
        command=None if last is None else predict_command(last.workload, last.device), notes=tuple(notes),
        confidence=confidence,
    )  # fmt: skip


def single_changes(
    model: Any, device: Device, captures: Captures, *, goal: str, predictor: str | Path | Predictor, confidence: float,
    host: str | float, region: str | None = None, **settings: Any,
) -> list[Line]:  # fmt: skip
    """Every change on its own, in the order of `optimise`: the claimed ones first, by what they gain. `captures` are
    shared with other questions on the same model."""
    case = Case(given_model(model, settings), device, captures=captures)
    tried = _Trial(case, goal_of(goal), predictor, confidence, host, region, None)
    return _ordered(tried.all_of(case)[0])


def _settings(workload: Workload) -> dict[str, Any]:
    """A workload's settings by name, without its model."""
    return {name: value for name, value in vars(workload).items() if name != "model"}


_RANK = {CLAIMED: 0, "cannot tell": 1, "worse": 2, DOES_NOT_FIT: 3}


def _ordered(lines: list[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (_RANK[line.verdict], -line.gain.value))


def _together(tried: _Trial, single: list[Line]) -> list[Line]:
    """The greedy combination: steps with cumulative gains."""
    steps: list[Line] = []
    options = single
    kinds: tuple[str, ...] = ()
    while len(steps) < MOST_STEPS:
        able = [
            o for o in options if o.verdict == CLAIMED and o.where == "settings" and o.case.device == tried.case.device
        ]
        if not able:
            break
        best = max(able, key=lambda o: o.gain.value)
        kinds = (*kinds, best.kind)
        combined = tried.line(Change(best.name, best.kind, best.case, best.code, best.risk), tried.case, kinds)
        steps.append(combined)
        options = tried.all_of(best.case)[0]
    return steps


class _Trial:
    """Predicts cases, each once, and compares them."""

    def __init__(
        self, case: Case, goal: Goal, predictor: str | Path | Predictor, confidence: float, host: str | float,
        region: str | None, instance: str | None,
    ) -> None:  # fmt: skip
        self.case, self.goal, self.predictor, self.host = case, goal, predictor, host
        self.settings: dict[str, Any] = {
            "predictor": predictor,
            "confidence": confidence,
            "host": host,
            "region": region,
        }
        self.instance, self.confidence = instance, confidence
        self.known: dict[Any, Answer] = {}
        folder = None if isinstance(predictor, Predictor) else saved_folder(predictor)
        self.errors = None if folder is None else gain_errors.read(folder)
        self.now = self.predicted(case).prediction
        goal.estimate(self.now)  # a goal that cannot be predicted ends here

    def predicted(self, case: Case) -> Answer:
        """The prediction of a case, never from the store, and its out-of-distribution deviation."""
        if case.key not in self.known:
            workload = case.predicted()
            instance = self.instance if case.device.id == self.case.device.id else None
            p = predict_workload(workload, case.device, measured=False, instance=instance, **self.settings)
            doubt = load_predictor(self.predictor).ood_sigma(profiled(workload).columns, [case.device], workload)
            self.known[case.key] = Answer(p, float(doubt[0]), case.device.kind)
        return self.known[case.key]

    def all_of(self, case: Case) -> tuple[list[Line], list[LeftOut]]:
        """Every change of a case that was tried, and the others with reasons."""
        lines, left_out = [], []
        for change in _proposed(Asked(case, self.predicted(case).prediction, self.goal)):
            if isinstance(change, LeftOut):
                left_out.append(change)
                continue
            try:
                lines.append(self.line(change, case, (change.kind,)))
            except ForerunError as error:
                left_out.append(LeftOut(change.name, str(error)))
        return lines, left_out

    def line(self, change: Change, before: Case, kinds: tuple[str, ...]) -> Line:
        """A change compared with the case before it; `kinds` are all changes between the two."""
        first, second = self.predicted(before), self.predicted(change.case)
        p, q = first.prediction, second.prediction
        goal = GOALS["throughput"] if change.shared_by > 1 else self.goal
        gain, source = compared(first, second, goal, kinds, self.errors, self.confidence, change.shared_by)
        fits = q.fit is None or q.fit.fits
        return Line(
            change.name, change.kind, change.where, gain.verdict if fits else DOES_NOT_FIT, gain, source, change.code,
            change.risk, p, q, change.case, change.shared_by,
        )  # fmt: skip

    def elsewhere(self) -> Iterator[OtherDevice]:
        """Other devices, for the goals cost and energy."""
        if self.goal.name in ("cost", "energy"):
            yield from other_devices(self.case, self.now, self.goal, **self.settings)


def _proposed(question: Asked) -> Iterator[Change | LeftOut]:
    for propose in (*PROPOSERS, *GRAPH_PROPOSERS):
        yield from propose(question)
