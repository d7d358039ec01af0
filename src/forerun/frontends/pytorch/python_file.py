"""Frontend for Python files of the user's own: `my_unet.py:UNet` is an order to run that file and take what it names.

Such a file is code and runs in this process with all its rights, as it does when the user starts it. So it runs only
where a workload says that its code is trusted: the public functions and the command line say so for a model that they
are given by its path. Names that come out of files, rows or requests do not say so, and are refused.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from forerun._util import documents
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends.base import Frontend, first_line
from forerun.frontends.pytorch.torch_module import TorchFrontend
from forerun.graph.ir import Graph
from forerun.workload import Workload, is_python_file

_MODULE = "forerun_user_file"


class PythonFileFrontend(Frontend):
    """A class, a function or a module object of a Python file, named as `file.py:Name`.

    It has no cache key: what code does depends on more than the file that it stands in.
    """

    takes = "a class or function of your own Python file, such as my_net.py:Net"
    priority = 100
    suffixes = (".py",)
    max_bytes = 10 * 2**20
    runs_code = True

    def matches(self, model: Any) -> bool:
        return is_python_file(model)

    def title(self, model: Any) -> str | None:
        return _parts(model)[1] or None

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        path, name = _parts(model)
        if not path.exists():
            raise ForerunError(f"there is no file {path}")
        if documents.regular_file(path) > self.max_bytes:
            raise ForerunError(f"{path} has more than {self.max_bytes:,} bytes, which is no Python file of a model")
        if not workload.trust_remote_code:
            raise ForerunError(
                f"{model} is Python code that must run to be predicted; if it is yours, trust_remote_code=True runs it"
            )
        with _own_imports(path.parent.resolve()), contextlib.redirect_stdout(sys.stderr):
            module = _built(path, name)
            try:
                graphs = TorchFrontend().load(module, workload)
            except SystemExit as e:
                raise ForerunError(f"{name} in {path} ends the program when it is called") from e
        ran = f"the code in {path.name} was run to build {name}"
        return [replace(graph, notes=[ran, *graph.notes]) for graph in graphs]


def _parts(model: Any) -> tuple[Path, str]:
    """The path and the name of `path.py:Name`; the name is empty where none is given."""
    found = re.fullmatch(r"(.*\.py)(?::(.*))?", str(model), re.S | re.I)
    if found is None:
        raise ForerunError(f"{model} is not a Python file with a name, such as my_net.py:Net")
    return Path(found[1]), found[2] or ""


@contextlib.contextmanager
def _own_imports(folder: Path) -> Iterator[None]:
    """Imports look beside the file first; what came from there is forgotten afterwards, since the user may edit it."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            origin = vars(sys.modules[name]).get("__file__")  # a lazy module would be imported by asking it
            if name == _MODULE or (origin and Path(origin).resolve().is_relative_to(folder) and _is_plain(origin)):
                del sys.modules[name]


def _is_plain(origin: str) -> bool:
    """Whether a module is a file of the user's and not an installed package that happens to lie below the folder."""
    return "site-packages" not in Path(origin).parts


def _built(path: Path, name: str) -> Any:
    """The torch.nn.Module that the file's class or function makes, on meta where its code allows that."""
    from torch import nn

    from forerun.capture.meta_build import on_meta

    module = _run(path)
    found = _named(module, path, name)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise ForerunError(f"{name} in {path} is a {type(found).__name__}, no class, function or torch.nn.Module")
    if needed := _required(found):
        raise ForerunError(
            f"{name} in {path} needs {', '.join(needed)}: write a function without arguments that returns the model, "
            "and name that"
        )
    try:
        with on_meta():
            made = found()
    except (Exception, SystemExit):  # noqa: BLE001 - code that reads values cannot be built without memory
        made = _called(found, path, f"{name}()")
    if not isinstance(made, nn.Module):
        raise ForerunError(f"{name}() in {path} gives a {type(made).__name__}, no torch.nn.Module")
    return made


def _run(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None and spec.loader is not None  # a .py file has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses and type hints look their module up
    cached, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # a question writes nothing beside the file
    try:
        _called(lambda: spec.loader.exec_module(module), path, str(path))
    finally:
        sys.dont_write_bytecode = cached
    return module


def _called(run: Any, path: Path, what: str) -> Any:
    """What a piece of the user's code gives; its error is one sentence with the line."""
    try:
        return run()
    except (Exception, SystemExit) as e:
        kind = type(e).__name__
        line = e.lineno if isinstance(e, SyntaxError) and e.filename == str(path) else _line(e, path)
        message = e.msg if isinstance(e, SyntaxError) else first_line(e)
        place = f" in line {line}" if line else ""
        raise ForerunError(f"{what} fails{place}: {kind}" + (f": {message}" if message != kind else "")) from e


def _line(error: BaseException, path: Path) -> int | None:
    """The last line of the user's file that was on its way to the error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    return frames[-1].lineno if frames else None


def _named(module: Any, path: Path, name: str) -> Any:
    from torch import nn

    offered = [
        key for key, value in vars(module).items()
        if isinstance(value, nn.Module)
        or (inspect.isclass(value) and issubclass(value, nn.Module) and value.__module__ == _MODULE)
    ]  # fmt: skip
    if not name:
        hint = f"it has {', '.join(offered)}" if offered else "it defines no torch.nn.Module"
        raise ForerunError(f"say which class or function of {path} makes the model, such as {path.name}:Net; {hint}")
    if name not in vars(module):
        near = did_you_mean(name, offered) or (f" It has {', '.join(offered)}." if offered else "")
        raise ForerunError(f"{path} has no {name}.{near}")
    return vars(module)[name]


def _required(found: Any) -> list[str]:
    """Arguments that a call must have."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in free]
