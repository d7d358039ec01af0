"""The commands by name. The module of each is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from forerun._util.version import __version__
from forerun.cli.plain_values import PlainCommand, convert_plainly

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True, "pretty_exceptions_enable": False, "rich_markup_mode": None,
}  # fmt: skip
#: The module of forerun.cli with each command: a function of its name, or `app`, a group of commands.
_MODULES = {
    "predict": "predicting", "compare": "predicting", "explain": "predicting",
    "describe": "describing",
    "devices": "listing", "hosts": "listing", "models": "listing", "doctor": "listing", "install": "listing",
    "recommend": "recommend", "optimise": "optimise", "budget": "budget", "mig": "mig", "serving": "serving",
    "plan": "plan", "report": "report", "serve": "serve", "mcp": "serve", "measure": "measuring",
    "verify": "measuring", "sweep": "measuring",
    "adapt": "adapt", "train": "training", "evaluate": "evaluation", "tune": "tune", "data": "data",
    "landscape": "landscape",
}  # fmt: skip


class _Commands(Mapping[str, Any]):
    """The commands by name, in the order of the help text; each is built once, when it is first used."""

    _built: ClassVar[dict[str, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module = import_module(f"forerun.cli.{_MODULES[name]}")
            holder, group = typer.Typer(**_SETTINGS), getattr(module, "app", None)
            if group is None:
                holder.command(name, cls=PlainCommand)(getattr(module, name))
            else:
                holder.add_typer(group, name=name)
            self._built[name] = typer.main.get_group(holder).commands[name]
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class _Group(TyperGroup):
    """The commands of `_MODULES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_Group, help="Predict how a deep-learning model will run before you run it.", **_SETTINGS)


@app.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"forerun {__version__}")
        raise typer.Exit
