"""The gate: frozen questions are predicted again and compared with the committed answers and with measurements.

    python benchmarks/gate.py            compare; exits with 1 where an answer moved, errors grew, or a note is old
    python benchmarks/gate.py --stamp    compare, then note that today's code predicts as the committed answers say
    python benchmarks/gate.py --write    freeze today's answers, and note how far they are from those of the code that
                                         made the kept held-out predictions; refused where errors against
                                         measurements grew, unless --worse is given

Answers may differ by TOLERANCE, which is more than processors differ by and less than any change of a law. Mean errors
against measurements, by mode, device and quantity, may grow by MARGIN. The notes are `made_by.json` beside the
predictors (src/forerun/evaluate/stamp.py). benchmarks/gate_questions.py has the questions.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gate_questions as asked

FROZEN = Path(__file__).parent / "gate.json.gz"
TOLERANCE = 1e-4
MARGIN = 0.005
ESTIMATES = ("latency_ms", "device_ms", "host_ms", "memory_mb", "memory_allocated_mb", "energy_j")
#: Numbers are kept with so many digits.
DIGITS = 7
Row = dict[str, Any]


def read_frozen(path: Path = FROZEN) -> list[Row]:
    with gzip.open(path) as file:
        return json.load(file)["rows"]


def write_frozen(rows: Sequence[Row], path: Path = FROZEN) -> None:
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(f'{{"rows": [\n{lines}\n]}}\n'.encode())


class Asking:
    """Asks as a user does, through `forerun.predict`; models that are no names are made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Any] = {}

    def model(self, named: Any) -> Any:
        if not isinstance(named, str):
            return named  # a Hugging Face config
        if named not in self.made:
            self.made[named] = self._make(named)
        return self.made[named]

    def _make(self, named: str) -> Any:
        from forerun.data import saved_graphs
        from forerun.data.store import Store

        if named == asked.MODULE:
            return asked.Mixed()
        if named == asked.ONNX_FILE:
            return asked.onnx_file(self.folder)
        if named.startswith("graph "):
            name = named.removeprefix("graph ")
            return saved_graphs.load(Store(), [name])[name]
        return named

    def answer(self, row: Row) -> Row:
        """What `predict` says of a question; a refusal is an answer, too."""
        import forerun
        from forerun.errors import ForerunError

        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in row["settings"].items()}
        try:
            found = forerun.predict(
                self.model(row["model"]), row["device"], **settings, measured=False, host="reference",
                predictor=row.get("predictor", "default"),
            )  # fmt: skip
        except ForerunError:
            return {"refused": True}
        out: Row = {
            name: [_short(e.value), _short(e.low), _short(e.high)]
            for name in ESTIMATES if (e := getattr(found, name)) is not None
        }  # fmt: skip
        fit = found.fit
        return out | {
            "flops": found.flops, "fits": fit.fits if fit else None, "largest_batch": fit.largest_batch if fit else None
        }  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS - 1}e}")


def title(row: Row) -> str:
    model = row["model"]
    if not isinstance(model, str):  # a config: its kind, and which of that kind
        digest = hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()
        model = f"{model['model_type']} {digest[:6]}"
    words = [f"{name}={value}" for name, value in sorted(row["settings"].items())]
    return " ".join([model, *words, "on", row["device"], row.get("predictor", "")]).strip()


def moved(was: Row, now: Row) -> list[str]:
    """A line for every value of an answer that is another one."""
    out = []
    for name in sorted(was.keys() | now.keys()):
        old, new = was.get(name), now.get(name)
        # The last batch that fits follows from a sum of many sizes.
        near = name == "largest_batch" and old and new and abs(new - old) <= max(1, TOLERANCE * old)
        if not near and not _same(old, new):
            out.append(f"{name}: {old} -> {new}")
    return out


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    numbers = isinstance(old, float | int) and isinstance(new, float | int)
    if numbers and not isinstance(old, bool) and not isinstance(new, bool):
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-12)
    return old == new


def errors(rows: Iterable[Row], answers: Iterable[Row]) -> dict[tuple[str, str], float]:
    """The mean error against measurements, by device with mode, and by quantity."""
    found: dict[tuple[str, str], list[float]] = {}
    for row, values in zip(rows, answers, strict=True):
        for name, measured in row.get("measured", {}).items():
            if name in values:
                group = f"{row['settings'].get('mode', 'inference')} on {row['device']}"
                found.setdefault((group, name), []).append(abs(values[name][0] / measured - 1))
    return {key: sum(each) / len(each) for key, each in sorted(found.items())}


def grown(rows: Sequence[Row], answers: Sequence[Row]) -> list[str]:
    """A line for every mode, device and quantity whose mean error is larger than that of the committed answers."""
    before, after = errors(rows, [row["answer"] for row in rows]), errors(rows, answers)
    return [
        f"{group}: the mean error of {name} was {before[group, name]:.2%} and is {error:.2%}"
        for (group, name), error in after.items()
        if (group, name) in before and not error <= before[group, name] + MARGIN
    ]


def check(rows: Sequence[Row], answers: Sequence[Row], most: int | None = None) -> list[str]:
    """What stops the gate: a line for every answer that moved (`most` of them) and every error that grew."""
    return [*differences(rows, answers)[:most], *grown(rows, answers)]


def differences(rows: Sequence[Row], answers: Sequence[Row]) -> list[str]:
    return [
        f"{title(row)}\n    " + "\n    ".join(lines)
        for row, values in zip(rows, answers, strict=True)
        if (lines := moved(row["answer"], values))
    ]


def all_answers(rows: Sequence[Row], folder: Path) -> list[Row]:
    """The answers to all questions, one model after another in as many processes as there are cores."""
    from forerun._util.parallel import side_by_side

    _import_before_processes_part()
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(json.dumps([row["model"], row["settings"].get("mode")], sort_keys=True), []).append(place)
    places = sorted(groups.values(), key=len, reverse=True)
    out: list[Row] = [{} for _ in rows]

    def work(some: list[int]) -> list[Row]:
        asking = Asking(Path(tempfile.mkdtemp(dir=folder)))
        return [asking.answer(rows[place]) for place in some]

    for some, answers in zip(places, side_by_side(work, places), strict=True):
        for place, values in zip(some, answers, strict=True):
            out[place] = values
    return out


def _import_before_processes_part() -> None:
    """What reads models: each process, and each child that reads a file, would import it for itself."""
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import onnx  # noqa: F401
    import timm  # noqa: F401
    import transformers.modeling_utils  # noqa: F401
    from transformers import AutoModelForCausalLM  # noqa: F401


def frozen_anew(before: Sequence[Row], folder: Path) -> list[Row]:
    """Today's questions with today's answers, and with those of the code that made the held-out predictions."""
    from forerun.evaluate.stamp import made_by

    rows = list({title(row): row for row in json.loads(json.dumps(list(asked.questions())))}.values())
    known = {title(row): row for row in before}
    for row, values in zip(rows, all_answers(rows, folder), strict=True):
        row["answer"] = values
        row["measured"] = {name: _short(value) for name, value in row.get("measured", {}).items()}
        row["made_by"] = made_by(row.get("predictor", "default"))
        old = known.get(title(row))
        if old and old["made_by"] == row["made_by"]:
            row["then"] = old["then"]
        else:  # the held-out predictions are new, or the question is
            row["then"] = values
    return rows


def moves(rows: Sequence[Row], predictor: str) -> dict[str, Any]:
    """By quantity, how far the answers of a predictor are from those of the code that made its held-out predictions, on
    the devices that these are of; empty where none moved."""
    judged = {row["device"] for row in rows if row["measured"]}
    mine = [row for row in rows if row.get("predictor", "default") == predictor and row["device"] in judged]
    if not any(moved(row["then"], row["answer"]) for row in mine):
        return {}
    out = {}
    for name in ESTIMATES:
        pairs = [(row["then"][name][0], row["answer"][name][0]) for row in mine
                 if name in row["then"] and name in row["answer"]]  # fmt: skip
        away = [abs(now / then - 1) for then, now in pairs if then]
        if away and max(away) > TOLERANCE:
            out[name] = {"mean": round(sum(away) / len(away), 5), "most": round(max(away), 5), "rows": len(away)}
    return out or {"intervals, refusals or fits": {"mean": 0.0, "most": 0.0, "rows": len(mine)}}


def stamp(rows: Sequence[Row]) -> None:
    from forerun.evaluate.stamp import write_stamp

    for predictor in kept_predictors():
        write_stamp(predictor, moves(rows, predictor))


def kept_predictors() -> list[str]:
    """The predictors that come with held-out predictions."""
    from forerun._util.companion import companion

    place = companion()
    if place is None:
        raise SystemExit("held-out predictions come with packages/forerun-data")
    return sorted(folder.name for folder in (place / "predictors").iterdir() if any(folder.glob("left_out*.parquet")))


def old_notes() -> list[str]:
    from forerun.evaluate.stamp import is_current

    return [
        f"the note on the held-out predictions of {name} is about other code or weights: make gate STAMP=1"
        for name in kept_predictors()
        if not is_current(name)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="freeze today's answers")
    parser.add_argument("--stamp", action="store_true", help="note that today's code predicts as was frozen")
    parser.add_argument("--worse", action="store_true", help="freeze answers also where errors grew")
    parser.add_argument("--cache", help="where captured models lie and are kept")
    parser.add_argument("--most", type=int, default=20, help="answers shown that moved")
    args = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cache", "store"):
            os.environ[f"FORERUN_{name.upper()}"] = str(Path(folder) / name)
        if args.cache:
            os.environ["FORERUN_CACHE"] = args.cache
        os.environ["FORERUN_LIMIT_S"] = "3600"  # a busy machine refuses nothing that an idle one answers
        before = read_frozen(FROZEN) if FROZEN.exists() else []
        if args.write:
            return _write(before, Path(folder), args.worse)
        answers = all_answers(before, Path(folder))
    problems = check(before, answers, args.most)
    if not problems and args.stamp:
        stamp(before)
    problems += old_notes()
    print(*problems, sep="\n")
    measured = sum(bool(row["measured"]) for row in before)
    equal = len(before) - len(differences(before, answers))
    for (group, name), error in errors(before, answers).items():
        print(f"{group:<28} {name:<20} {error:6.1%} from measurements")
    took = f"{time.perf_counter() - started:.0f} s"
    print(f"{equal} of {len(before)} answers as frozen, {measured} of them measured ({took})")
    return 1 if problems else 0


def _write(before: Sequence[Row], folder: Path, worse: bool) -> int:
    from forerun.evaluate.stamp import made_by, write_stamp

    for name in kept_predictors():
        if made_by(name) is None:  # of a predictor that has no note yet: today's code made them
            write_stamp(name)
    rows = frozen_anew(before, folder)
    now = {title(row): row["answer"] for row in rows}
    same = [row for row in before if title(row) in now]
    answers = [now[title(row)] for row in same]
    if (lines := grown(same, answers)) and not worse:
        print(*lines, "nothing was written: give --worse to freeze these answers all the same", sep="\n")
        return 1
    write_frozen(rows)
    stamp(rows)
    print(f"{len(differences(same, answers))} of {len(same)} answers moved; {len(rows)} written to {FROZEN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
