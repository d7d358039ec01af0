"""A warm Python: what a test runs in a process of its own is forked from one that has imported the heavy libraries.

The process has its own arguments, environment, working directory, output and exit code, as one that is started has;
only the seconds of imports are not spent again. Variables that libraries read while they are imported (of Python,
Hugging Face and the like) belong to the start: there is a warm Python for each set of their values.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil

#: What commands import, by the seconds that it takes.
HEAVY = (
    "torch", "torch._dynamo", "torch._decomp", "torch._refs", "torch.distributed", "torch.utils.flop_counter",
    "torchvision", "timm", "transformers", "transformers.modeling_utils", "transformers.models.auto",
    "transformers.models.auto.modeling_auto", "transformers.cache_utils", "transformers.models.llama.modeling_llama",
    "pandas", "pyarrow.parquet", "duckdb", "scipy.optimize", "scipy.stats", "sklearn.ensemble", "xgboost", "onnx",
    "rich.console", "typer",
)  # fmt: skip
#: Packages of ours that commands import: all modules, but for servers and what they alone need.
OURS = ("forerun.cli", "forerun.api", "forerun.advice", "forerun.capture", "forerun.data", "forerun.decisions",
    "forerun.device", "forerun.evaluate", "forerun.frontends", "forerun.graph", "forerun.landscape", "forerun.measure",
    "forerun.networks", "forerun.predictors", "forerun.report", "forerun.runtimes", "forerun.serving",
    "forerun.training", "forerun.views", "forerun._util",
)  # fmt: skip
#: What a server imports besides.
OF_SERVERS = (
    "fastapi",
    "uvicorn",
    "mcp.server.fastmcp",
    "gradio",
    "orjson",
    "forerun.web.server",
    "forerun.web.page.mount",
)
#: Variables that are read by imports begin with these.
OF_THE_START = (
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "HF_",
    "TRANSFORMERS_",
    "TORCH",
    "OMP_",
    "MKL_",
    "LANG",
    "LC_",
    "NO_COLOR",
    "FORCE_COLOR",
)
#: Libraries set these themselves while they are imported.
NOT_OF_THE_START = ("TRANSFORMERS_VERBOSITY", "TORCHINDUCTOR_CACHE_DIR")

#: Seconds that imports may take on a busy machine.
START_S = 600.0


class Running:
    """A process that was forked: like `subprocess.Popen`, as far as tests need it."""

    def __init__(self, parent: WarmPython, pid: int) -> None:
        self.parent, self.pid = parent, pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = int(self.parent.answer(timeout))
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class WarmPython:
    """One warm process; what it forks runs one at a time, but for what is left to `run_on`."""

    def __init__(self, env: Mapping[str, str], also: Sequence[str] = (), base: WarmPython | None = None) -> None:
        """One that has imported `also` more modules is forked from its `base`, where there is one."""
        self.socket, its = socket.socketpair()
        if base is not None:
            forked = base._sent({"also": list(also), "run_on": True}, [its.fileno()])
            self.process: psutil.Process = psutil.Process(forked.pid)
        else:
            work = f"import warm; warm.serve({its.fileno()}, {tuple(also)!r})"
            code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {work}"
            self.process = psutil.Popen(
                [sys.executable, "-c", code], pass_fds=[its.fileno()], env=dict(env), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        its.close()

    def start(
        self, words: Sequence[str], *, cwd: str | Path, env: Mapping[str, str], stdout: int, stderr: int,
        stdin: int | None = None, run_on: bool = False,
    ) -> Running:  # fmt: skip
        """`python WORDS`, where the words are `-m module ...`, `-c code ...` or `script ...`. With `run_on` others may
        be started before it ends, which is seen by its number and not by its exit code."""
        task = {"words": [os.fspath(w) for w in words], "cwd": os.fspath(cwd), "env": dict(env), "run_on": run_on}
        return self._sent(task, [stdout, stderr, *([] if stdin is None else [stdin])])

    def _sent(self, task: dict[str, Any], files: list[int]) -> Running:
        data = json.dumps(task).encode()
        socket.send_fds(self.socket, [len(data).to_bytes(8, "big")], files)
        self.socket.sendall(data)
        return Running(self, int(self.answer(timeout=START_S)))

    @property
    def ended(self) -> bool:
        return not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE

    def answer(self, timeout: float | None) -> str:
        """A line: the number of the process that was forked, and later its exit code."""
        found = b""
        while not found.endswith(b"\n"):
            if not select.select([self.socket], [], [], timeout)[0]:
                self.process.kill()  # what it says later would be taken for the next answer
                raise subprocess.TimeoutExpired("warm python", timeout or 0.0)
            part = self.socket.recv(1)
            if not part:
                raise RuntimeError("the warm Python ended")
            found += part
        return found.decode()

    def close(self) -> None:
        self.socket.close()
        self.process.wait(timeout=20)


_started: dict[tuple[Any, ...], WarmPython] = {}


def python(env: Mapping[str, str], *of_the_start: str, also: Sequence[str] = ()) -> WarmPython:
    """The warm Python of an environment, which has imported `also` these modules; these variables, too, have their
    values from its start on."""
    names = (*OF_THE_START, *of_the_start)
    set_before = {name: value for name, value in env.items() if name not in NOT_OF_THE_START}
    key = (*also, *sorted((name, value) for name, value in set_before.items() if name.startswith(names)))
    if key not in _started or _started[key].ended:
        _started[key] = WarmPython(env, also, python(env, *of_the_start) if also else None)
    return _started[key]


def close_all() -> None:
    for one in reversed(_started.values()):  # those that were forked from another first
        one.close()
    _started.clear()


def start(words: Sequence[str], stdout: int, stderr: int) -> Running:
    """What `subprocess.Popen([sys.executable, *words], ...)` gives."""
    return python(os.environ).start(words, cwd=Path.cwd(), env=os.environ, stdout=stdout, stderr=stderr)


def run(
    words: Sequence[str], *, cwd: str | Path = ".", env: Mapping[str, str] | None = None, timeout: float = 900.0,
    of_the_start: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """What `subprocess.run([sys.executable, *words], capture_output=True, text=True)` gives."""
    env = os.environ if env is None else env
    warm = python(env, *of_the_start)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = warm.start(words, cwd=Path(cwd).resolve(), env=env, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([sys.executable, *words], code, *texts)


def _modules() -> list[str]:
    """Every module of OURS, but for one that asks which packages are installed while it is imported: those of a process
    that is forked may be others."""
    packages = [importlib.import_module(name) for name in OURS]
    inner = [m.name for p in packages for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")]
    return [*OURS, *(name for name in inner if name != "forerun.evaluate.check")]


def serve(number: int, also: Sequence[str]) -> NoReturn:
    """The warm process: forks for every task that comes through the socket, until its other end is closed."""
    sys.path.remove(str(Path(__file__).parent))
    connection = socket.socket(fileno=number)
    from forerun.capture import torch_compat

    torch_compat.prepare()  # as everything of ours that imports torch does first
    _import((*HEAVY, *_modules()))
    from forerun._util import installed

    assert not installed._folders.cache_info().currsize, "a module asks for installed packages while it is imported"
    _fork_for(connection, also)


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _fork_for(connection: socket.socket, modules: Sequence[str]) -> NoReturn:
    """Imports the modules, then forks for each task."""
    import gc

    _import(modules)
    gc.collect()
    gc.freeze()
    running: set[int] = set()

    def ended(*_: Any) -> None:
        """So that those that run on are not waited for, and are gone when they have ended."""
        for child in tuple(running):
            if os.waitpid(child, os.WNOHANG)[0]:
                running.discard(child)

    signal.signal(signal.SIGCHLD, ended)
    while True:
        head, streams, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            os._exit(0)
        while len(head) < 8:
            head += connection.recv(8 - len(head))
        size, data = int.from_bytes(head, "big"), b""
        while len(data) < size:
            data += connection.recv(size - len(data))
        task = json.loads(data)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            if "also" in task:
                _fork_for(socket.socket(fileno=streams[0]), task["also"])
            _work(task, *streams)
        for stream in streams:
            os.close(stream)
        if task["run_on"]:
            running.add(child)
            connection.sendall(f"{child}\n".encode())
            ended()  # it may have been before it was listed
            continue
        connection.sendall(f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _work(task: dict[str, Any], stdout: int, stderr: int, stdin: int | None = None) -> NoReturn:
    code = 1
    try:
        if stdin is not None:
            os.dup2(stdin, 0)
            os.close(stdin)
            sys.stdin = os.fdopen(0, "r", encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)
        for stream, place, name in ((stdout, 1, "stdout"), (stderr, 2, "stderr")):
            os.dup2(stream, place)
            os.close(stream)
            was = getattr(sys, name)  # of another kind of file: a pipe cannot be sought in
            line = 1 if name == "stderr" else -1
            new = os.fdopen(place, "w", line, encoding=was.encoding, errors=was.errors, closefd=False)
            setattr(sys, name, new)
        before = _python_path()
        os.environ.clear()
        os.environ.update(task["env"])
        sys.path[:] = ["", *_python_path(), *(place for place in sys.path if place and place not in before)]
        os.chdir(task["cwd"])
        importlib.invalidate_caches()
        how, *words = task["words"]
        what = words.pop(0) if how in ("-m", "-c") else how
        sys.argv = [how if how == "-c" else what, *words]
        code = _exit_code(how, what)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _python_path() -> list[str]:
    return [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]


def _exit_code(how: str, what: str) -> int:
    try:
        if how == "-m":
            sys.modules.pop(f"{what}.__main__", None)  # a process of its own would not have it yet
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif how == what:
            sys.path[0] = str(Path(what).parent)
            runpy.run_path(what, run_name="__main__")
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0
