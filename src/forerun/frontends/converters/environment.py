"""Converters that cannot live beside forerun: each runs in a Python that has its packages.

That is the current interpreter when it has them, else a private virtual environment under forerun's data folder
(`FORERUN_HOME` moves it), which `install(name)` makes once: `forerun install keras`, `forerun install paddle`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun._util import limits
from forerun._util.folders import user_data
from forerun.errors import ForerunError, MissingPackage, did_you_mean

#: Seconds a conversion may take. ResNet-50 takes 25 s through tf2onnx on two cores.
TIMEOUT_S = 600


@dataclass(frozen=True)
class Environment:
    """What a converter needs: modules to look for, and what pip installs when they are not there."""

    what: str  # as in "A Keras model needs ..."
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    size_mb: int  # on disk once installed; the user is informed beforehand


# TensorFlow names its CPU build by platform.
_X86 = platform.machine().lower() in ("x86_64", "amd64") and sys.platform != "darwin"
ENVIRONMENTS: dict[str, Environment] = {
    "keras": Environment(
        "A Keras or TensorFlow model", ("tensorflow", "keras", "tf2onnx"),
        ("tensorflow-cpu==2.21.0" if _X86 else "tensorflow==2.21.0", "keras==3.15.1", "tf2onnx==1.17.0",
         "onnx==1.23.2", "protobuf==7.36.2"),
        1600,
    ),
    # paddle2onnx 2.1 wants onnx 1.17, and forgets to say that it needs packaging; paddle imports setuptools.
    "paddle": Environment(
        "A Paddle model", ("paddle", "paddle2onnx"),
        ("paddlepaddle>=3.2.2,<3.4", "paddle2onnx==2.1.0", "onnx==1.17.0", "packaging==26.3", "setuptools==84.2.1"),
        950,
    ),
}  # fmt: skip


def home() -> Path:
    """Where forerun keeps what it installs: FORERUN_HOME, or the platform's data folder for an app."""
    chosen = os.environ.get("FORERUN_HOME")
    return Path(chosen) if chosen else user_data()


def folder(name: str) -> Path:
    return home() / "envs" / name


def environment(name: str) -> Environment:
    if name not in ENVIRONMENTS:
        known = ", ".join(ENVIRONMENTS)
        hint = did_you_mean(name, ENVIRONMENTS)
        raise ForerunError(f"There is nothing called '{name}' to install; choose from {known}.{hint}")
    return ENVIRONMENTS[name]


def _python(base: Path) -> Path:
    return base / "Scripts" / "python.exe" if sys.platform == "win32" else base / "bin" / "python"


def _fingerprint(name: str) -> str:
    packages = [*environment(name).packages, f"python{sys.version_info.major}.{sys.version_info.minor}"]
    return hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]


def _installed(name: str) -> dict[str, str] | None:
    """What `install` wrote when it finished, or None when there is no whole environment."""
    try:
        found = json.loads((folder(name) / "forerun.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and _python(folder(name)).exists() else None


def _here(name: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in environment(name).modules)


def status(name: str) -> dict[str, str | None]:
    """For `forerun doctor`: state is 'here' (this interpreter has it), 'installed', 'outdated' or 'missing'."""
    spec = environment(name)
    found = _installed(name)
    if _here(name):
        state, where = "here", sys.executable
    elif found is None:
        state, where = "missing", None
    else:
        state = "installed" if found.get("fingerprint") == _fingerprint(name) else "outdated"
        where = str(folder(name))
    command = None if state in ("here", "installed") else f"forerun install {name}"
    return {"name": name, "state": state, "where": where, "packages": " ".join(spec.packages), "command": command}


def python_for(name: str) -> str:
    """The interpreter that can run this converter; MissingPackage names the command that makes one."""
    if _here(name):
        return sys.executable
    if _installed(name) is not None:
        return str(_python(folder(name)))
    spec = environment(name)
    raise MissingPackage(spec.what, " and ".join(spec.modules[-2:]), f"forerun install {name}")


def _silent(line: str) -> None:
    """Progress that is not shown."""


def install(name: str, progress: Callable[[str], None] | None = None) -> Path:
    """Make the private environment (again), reporting each step; nothing half-made is left behind."""
    say = progress or _silent
    spec = environment(name)
    target = folder(name)
    found = _installed(name)
    if found is not None and found.get("fingerprint") == _fingerprint(name):
        say(f"{name} is already installed in {target}")
        return target
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    free_mb = shutil.disk_usage(target.parent).free // 2**20
    if free_mb < 1.5 * spec.size_mb:
        raise ForerunError(f"Installing {name} takes {spec.size_mb} MB, but {target.parent} has {free_mb} MB free.")
    partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        say(f"Creating an environment in {target} (about {spec.size_mb} MB)")
        _step([sys.executable, "-m", "venv", str(partial)], say)
        say(f"Installing {', '.join(spec.packages)}")
        pip = [str(_python(partial)), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        _step([*pip, *spec.packages], say)
        (partial / "forerun.json").write_text(json.dumps({"fingerprint": _fingerprint(name), "name": name}))
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"{name} is ready ({time.monotonic() - started:.0f} s)")
    return target


def _step(command: Sequence[str], say: Callable[[str], None]) -> None:
    """Run one installation step, passing its lines on; its failure is one sentence."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.strip()
            if text.startswith(("Collecting", "Downloading", "Installing", "Successfully")):
                say(text[:100])
            if text.startswith("ERROR"):
                last = text.removeprefix("ERROR:").strip()
    if process.returncode:
        raise ForerunError(f"The installation failed: {last or f'exit code {process.returncode}'}")


def convert(name: str, script: str, arguments: Sequence[str], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Run a converter script in its environment; whatever goes wrong becomes one sentence about `what`."""
    path = Path(__file__).parent / "scripts" / script
    python = python_for(name)
    isolated = [] if python == sys.executable else ["-I"]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "GLOG_v": "0"}
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [python, *isolated, str(path), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, **quiet}, start_new_session=True, **_limited(arguments, timeout_s),
        )  # fmt: skip
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ForerunError(f"Converting {what} to ONNX took longer than {timeout_s:.0f} s.") from None
        finally:
            if process.poll() is None:
                _end(process)
        log.seek(0)
        text = log.read()
    if code:
        raise ForerunError(f"{what} cannot be converted to ONNX: {reason(text, code)}.")


def _limited(arguments: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """How a converter is started so that a file cannot make it take the machine's memory."""
    if sys.platform == "win32":
        return {}
    size_mb = sum(Path(a).stat().st_size for a in arguments if Path(a).is_file()) / 2**20
    allowed = limits.Limits(cpu_s=8 * timeout_s, memory_mb=int(8192 + 12 * size_mb))
    return {"preexec_fn": lambda: limits.restrict(allowed)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the converter and what it started: it leads a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def reason(log: str, code: int) -> str:
    """Why a converter failed: the line it marked, else the last line of its output, else how it ended."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line.removeprefix("FORERUN-ERROR ") for line in lines if line.startswith("FORERUN-ERROR ")]
    if marked:
        return marked[-1].rstrip(".")
    if code < 0:
        return f"the converter was ended by signal {-code}"
    return lines[-1].rstrip(".") if lines else f"the converter ended with code {code}"
