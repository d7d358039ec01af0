"""The description of a family of networks, and how its names are parsed and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from forerun.errors import ForerunError, did_you_mean

if TYPE_CHECKING:
    from torch import nn

Settings = dict[str, int]


@dataclass(frozen=True)
class Setting:
    """A whole number in a name; without a default it must be given."""

    default: int | None
    low: int
    high: int


@dataclass(frozen=True)
class Input:
    """One input of a network, without the batch: real numbers, or whole numbers below `below` (tokens, indices)."""

    shape: tuple[int, ...]
    below: int | None = None

    @classmethod
    def read(cls, given: Any) -> Input:
        """An input as a sweep lists it: its shape, or {shape: ..., below: ...} for whole numbers."""
        described = given if isinstance(given, dict) else {"shape": given}
        return cls(tuple(described["shape"]), described.get("below"))


@dataclass(frozen=True)
class Family:
    """Networks of one design that differ by whole-numbered settings."""

    prefix: str  # the name of a member is prefix:setting=value,...
    kind: str  # the kind of network: "diffusion U-Net", "recurrent"
    settings: Mapping[str, Setting]
    build: Callable[..., nn.Module]  # called with every setting by name
    inputs: Callable[[Settings], dict[str, Input]]  # by argument of forward; "" for the only, positional one
    always_named: tuple[str, ...] = ()  # settings that a name includes even at their default
    problem: Callable[[Settings], str | None] = lambda settings: None  # what is wrong with a combination of settings
    modes: tuple[str, ...] = ("inference", "training")

    def parse(self, name: str) -> Settings:
        """All settings of a name, omitted ones at their default; a ForerunError says what is wrong."""
        prefix, colon, rest = name.partition(":")
        if not colon or prefix != self.prefix:
            raise ForerunError(f"'{name}' does not start with '{self.prefix}:'.")
        given = read_settings(name, filter(None, rest.split(",")), self.settings)
        for key, setting in self.settings.items():
            if setting.default is None and key not in given:
                raise ForerunError(f"'{name}' must say {key}=, as in {self.example()}.")
        filled = {key: given.get(key, setting.default) for key, setting in self.settings.items()}
        settings = {key: value for key, value in filled.items() if value is not None}
        wrong = self.problem(settings)
        if wrong:
            raise ForerunError(f"'{name}': {wrong}.")
        return settings

    def name(self, **settings: int) -> str:
        """The name that `parse` reads back to the same settings; defaults are omitted."""
        shown = {
            key: settings.get(key, setting.default)
            for key, setting in self.settings.items()
            if key in self.always_named or settings.get(key, setting.default) != setting.default
        }
        return f"{self.prefix}:" + ",".join(f"{key}={value}" for key, value in shown.items())

    def example(self) -> str:
        """A name that parses."""
        needed = {key: max(setting.low, 8) for key, setting in self.settings.items() if setting.default is None}
        return self.name(**needed)

    def make(self, name: str) -> nn.Module:
        """The network of a name."""
        return self.build(**self.parse(name))


def read_settings(name: str, parts: Iterable[str], settings: Mapping[str, Setting]) -> Settings:
    """The whole numbers in `parts`, each within its limits; a ForerunError names the first that is wrong."""
    numbers: Settings = {}
    for part in parts:
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or key not in settings:
            raise ForerunError(
                f"'{part}' in '{name}' is not one of {', '.join(settings)}.{did_you_mean(key, settings)}"
            )
        if key in numbers:
            raise ForerunError(f"'{key}' is given twice in '{name}'.")
        limits, number = settings[key], _whole(text)
        if number is None or not limits.low <= number <= limits.high:
            raise ForerunError(f"{key}={text} in '{name}' must be a whole number from {limits.low} to {limits.high}.")
        numbers[key] = number
    return numbers


def _whole(text: str) -> int | None:
    """The whole number of a text such as 1000000 or 1e6; None where it is none, or has an exponent out of reach."""
    if text.isdecimal() and len(text) <= 30:
        return int(text)
    if re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,20})?[eE]\+?[0-9]{1,2}", text, re.ASCII):
        number = Decimal(text)
        return int(number) if number == int(number) else None
    return None


def training_loss(outputs: Any) -> Any:
    """The loss that a member of a family is trained with: cross-entropy for class scores, else the mean."""
    from torch import Tensor, int64, stack, zeros
    from torch.nn import functional

    tensors = [outputs] if isinstance(outputs, Tensor) else [t for t in outputs if isinstance(t, Tensor)]
    logits = tensors[0]
    if len(tensors) == 1 and logits.dim() == 2 and logits.shape[1] > 1:
        return functional.cross_entropy(logits, zeros(logits.shape[0], dtype=int64, device=logits.device))
    return stack([t.float().mean() for t in tensors if t.is_floating_point()]).sum()
