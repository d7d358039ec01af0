"""Frontend for Paddle inference models: .pdmodel or .json (PIR) with .pdiparams, or their folder; by paddle2onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, file_hash, inference_or_training
from forerun.frontends.onnx.read_as import read_as
from forerun.graph.ir import Graph
from forerun.workload import Workload


class PaddleFrontend(Frontend):
    """A Paddle program with its weights beside it, or the folder that holds both."""

    takes = "a Paddle inference model or its folder"
    runs_modules = False
    trains_modules = True
    priority = 100
    suffixes = (".pdmodel", ".pdiparams", ".json")

    def matches(self, model: Any) -> bool:
        if not isinstance(model, (str, Path)):
            return False
        path = Path(model)
        if path.suffix.lower() == ".json":  # which Hugging Face configs are too
            return _is_program(path)
        return self.claims(path) or (path.is_dir() and any(path.glob("*.pdiparams")))

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        content = self.content(model)
        return content and {**content, **read_as(workload)}

    def title(self, model: Any) -> str | None:
        try:
            return _pair(model)[0].stem
        except ForerunError:
            return None

    def content(self, model: Any) -> dict[str, Any] | None:
        """The content of the program and the versions of what converts it."""
        try:
            program, params = _pair(model)
        except ForerunError:
            return None
        from forerun.frontends.converters.environment import environment  # only now: every question comes by here

        return {
            "frontend": "paddle", "packages": list(environment("paddle").packages),
            "sha256": [file_hash(program), file_hash(params)],
        }  # fmt: skip

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.frontends.converters import converted
        from forerun.frontends.converters import environment as converter_env

        inference_or_training(workload, "A Paddle inference model")
        program, params = _pair(model)

        def run(made: Path, facts: Path) -> None:
            arguments = [str(program.resolve()), str(params.resolve()), str(made)]
            converter_env.convert("paddle", "paddle_to_onnx.py", arguments, program.name)

        onnx, facts = converted.convert_once(self.content(model), run)
        return converted.graphs_from(onnx, facts, workload, program.stem, "paddle")


def _is_program(path: Path) -> bool:
    """A .json is Paddle's when it opens as one; a Hugging Face config.json does not."""
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as handle:
            head = handle.read(256)
    except OSError:
        return False
    return b'"base_code"' in head and b'"pir"' in head


def _pair(model: Any) -> tuple[Path, Path]:
    """The program and its weights."""
    path = Path(model)
    if path.is_dir():
        params = sorted(path.glob("*.pdiparams"))
        if len(params) != 1:
            raise ForerunError(f"{path} holds {len(params)} Paddle models; name one of them.")
        path = params[0]
    elif not path.is_file():
        raise ForerunError(f"There is no file {path}.")
    if path.suffix.lower() == ".pdiparams":
        programs = [p for p in (path.with_suffix(".json"), path.with_suffix(".pdmodel")) if p.is_file()]
        if not programs:
            raise ForerunError(f"{path.name} holds weights only; {path.stem}.json or {path.stem}.pdmodel is missing.")
        return programs[0], path
    params_path = path.with_suffix(".pdiparams")
    if not params_path.is_file():
        raise ForerunError(f"{path.name} needs its weights beside it: there is no {params_path.name}.")
    return path, params_path
