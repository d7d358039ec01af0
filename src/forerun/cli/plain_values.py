"""Options whose values are plain text, numbers or flags, read without pydantic.

Some versions of Typer convert every value through pydantic, whose import takes longer than a prediction. Invalid values
are left to Typer, for its error messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand


class PlainCommand(TyperCommand):
    """A command that converts plain values without pydantic."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)


def convert_plainly(params: Iterable[Any]) -> None:
    """Makes these options convert plain values themselves."""
    for param in params:
        if hasattr(param, "get_runtime_param") and not isinstance(param.get_runtime_param, _Plain):
            param.get_runtime_param = _Plain(param, param.get_runtime_param)


class _Plain:
    """The converter of one option's values; a call returns itself, in place of what Typer would build."""

    def __init__(self, param: Any, build: Any) -> None:
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        bounded = getattr(info, "min", None) is not None or getattr(info, "max", None) is not None
        self.build, self.several = build, param.multiple or param.nargs == -1
        self.parser = info.parser or (kind if kind in (int, float) and not bounded else None)
        self.text = kind is str and info.parser is None

    def __call__(self) -> _Plain:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if self.several else None
        if self.text and isinstance(value, str):
            return value
        if self.parser is not None and not self.several:
            try:
                return self.parser(value)
            except (ValueError, TypeError, typer.BadParameter):
                pass  # reported below with Typer's message
        return self.build().coerce(value, param=param, ctx=ctx)
