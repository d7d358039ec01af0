"""Builds the wheel, installs it into an empty environment away from the checkout, and asks it for a prediction."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        away = Path(name)
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", away, ROOT], check=True, stdout=subprocess.DEVNULL
        )
        (wheel,) = away.glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", away / "env"], check=True)
        python = away / "env" / "bin" / "python"
        quiet = ["--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
        subprocess.run([python, "-m", "pip", "install", *quiet, wheel], check=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        env["FORERUN_CACHE"] = str(away / "cache")
        empty = away / "empty"
        empty.mkdir()
        command = [away / "env" / "bin" / "forerun", "predict", "resnet50", "--device", "a100"]
        answer = subprocess.run(command, cwd=empty, env=env, check=True, capture_output=True, text=True).stdout
        where = subprocess.run(
            [python, "-c", "import forerun; print(forerun.__file__)"], cwd=empty, env=env, check=True,
            capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert "Latency" in answer and str(ROOT) not in where, where
        print(answer)
        print(f"{wheel.name} ({wheel.stat().st_size / 2**20:.1f} MB) answers from an empty environment")


if __name__ == "__main__":
    main()
