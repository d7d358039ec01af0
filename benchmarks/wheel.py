"""Builds both wheels, installs forerun's into an empty environment away from the checkout, and asks it for predictions:
first with the core alone, then, for what an extra brings, for the sentence that names it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "packages" / "forerun-data"
#: The most that the wheel and the core's environment may weigh, in MB.
WHEEL_MB, CORE_MB = 12, 1800
#: What the core refuses, and the extra that it names.
NEEDS = (
    (("data", "ls"), "data"), (("predict", "none.onnx", "-d", "a100"), "onnx"), (("serve",), "web"),
    (("predict", "resnet50", "-d", "h200", "--predictor", "trees"), "evaluate"),
    (("mig", "-d", "a100", "resnet50"), "mig"), (("measure", "resnet18"), "measure"),
    (("report", "resnet50", "-d", "a100", "-o", "report.html"), "report"),
)  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        away = Path(name)
        for source in (ROOT, DATA):
            build = [sys.executable, "-m", "build", "--wheel", "--outdir", away, source]
            subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        wheel, data = next(away.glob("forerun-*.whl")), next(away.glob("forerun_data-*.whl"))
        subprocess.run([sys.executable, "-m", "venv", away / "env"], check=True)
        python, forerun = away / "env" / "bin" / "python", away / "env" / "bin" / "forerun"
        empty = away / "empty"
        empty.mkdir()
        (empty / "none.onnx").write_bytes(b"")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FORERUN"))}
        env |= {"FORERUN_CACHE": str(away / "cache"), "FORERUN_STORE": str(away / "store")}

        def install(path: Path) -> None:
            quiet = ["--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
            subprocess.run([python, "-m", "pip", "install", *quiet, path], check=True)

        def run(*words: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run(list(map(str, words)), cwd=empty, env=env, capture_output=True, text=True)

        install(wheel)
        answer = run(forerun, "predict", "resnet50", "--device", "a100")
        where = run(python, "-c", "import forerun; print(forerun.__file__)").stdout
        assert answer.returncode == 0 and "Latency" in answer.stdout and str(ROOT) not in where, answer.stderr + where
        for words, extra in NEEDS:
            refused = run(forerun, *words)
            sentence = refused.stderr.strip().splitlines()[-1]
            assert refused.returncode == 2 and f"pip install 'forerun[{extra}]'" in sentence, refused.stderr
        weights = {"forerun": wheel.stat().st_size / 2**20, "core": _size(away / "env") / 2**20}
        assert weights["forerun"] <= WHEEL_MB and weights["core"] <= CORE_MB, weights
        install(data)
        found = run(forerun, "predict", "resnet50", "-d", "h200", "--predictor", "regressors")
        assert found.returncode == 0, found.stderr
        print(answer.stdout)
        print(
            f"{wheel.name} ({weights['forerun']:.1f} MB) answers from an empty environment ({weights['core']:.0f} MB), "
            f"and {data.name} ({data.stat().st_size / 2**20:.1f} MB) is found"
        )


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
