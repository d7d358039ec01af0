"""The options that describe a workload, given to every command that takes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from forerun.cli import options as o
from forerun.runtimes.registry import USUAL

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "batch": (o.BatchOption, 1), "dtype": (o.DtypeOption, None), "mode": (o.ModeOption, "inference"),
    "seq_len": (o.SeqLenOption, None), "input_shape": (o.InputShapeOption, None),
    "image_size": (o.ImageSizeOption, None), "images": (o.ImagesOption, None),
    "new_tokens": (o.NewTokensOption, None), "decoding": (o.DecodingOption, None), "prompt": (o.PromptOption, None),
    "cache": (o.CacheOption, None), "optimizer": (o.OptimizerOption, None), "amp": (o.AmpOption, None),
    "channels_last": (o.ChannelsLastOption, False), "tf32": (o.Tf32Option, False),
    "runtime": (o.RuntimeOption, USUAL), "task": (o.TaskOption, None),
    "trust_remote_code": (o.RemoteCodeOption, False),
}  # fmt: skip
#: Of commands that ask about several devices running a model together.
_SEVERAL: dict[str, tuple[Any, Any]] = {"tp": (o.TpOption, 1), "pp": (o.PpOption, 1)}


@dataclass(frozen=True)
class WorkloadSettings:
    """Values of the options, by the names of a workload's settings."""

    values: dict[str, Any]


def takes_workload(*without: str, several: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options of a workload to a command, whose argument `settings` receives them as `WorkloadSettings`.

    `without` names settings that the command does not use or defines itself; `several` adds those of several devices.
    """
    every = {**_OPTIONS, **(_SEVERAL if several else {})}
    offered = {name: option for name, option in every.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in offered}
            if "input_shape" in values:
                values["input_shape"] = o.parse_input_shape(values["input_shape"])
            if "dtype" in values:
                values["dtype"] = o.with_tf32(values["dtype"], values.pop("tf32", False))
            command(settings=WorkloadSettings(values), **given)

        hints = get_type_hints(command, include_extras=True)
        parameters = [p.replace(annotation=hints[p.name]) for p in inspect.signature(command).parameters.values()]
        place = next(at for at, p in enumerate(parameters) if p.name == "settings")
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in offered.items()
        ]
        merged = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*parameters[:place], *shared, *parameters[place + 1 :])
        ]
        run.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in merged}
        return run

    return decorate
