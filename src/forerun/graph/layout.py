"""How a model is laid out over several devices: which kinds of parallelism, and how many devices each of them has."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

from forerun.errors import ForerunError

#: The most devices that a layout may have: more than any machine that was built.
MAX_DEVICES = 2**20


@dataclass(frozen=True)
class Layout:
    """Numbers of devices by kind of parallelism; a model on one device is `Layout()`.

    tp: tensor parallel, every layer divided. pp: pipeline stages, layers in turn. dp: replicas, each with a batch of
    its own. ep: devices over which the experts of a layer are divided whole (1: with the layer, by `tp`). zero: what
    replicas do not all hold (1: states of the optimizer, 2: and gradients, 3: and weights, as FSDP). sp: activations
    between divided layers are divided along the sequence. cp: every sequence is divided.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 0
    sp: bool = False
    cp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name == "sp":
                continue
            least = 0 if field.name == "zero" else 1
            object.__setattr__(self, field.name, _whole(field.name, getattr(self, field.name), least))
        if self.zero > 3:
            raise ForerunError(f"zero is a stage of ZeRO, 0 to 3, got {self.zero}")
        object.__setattr__(self, "sp", bool(self.sp) and self.tp > 1)
        if self.devices > MAX_DEVICES:
            raise ForerunError(f"a layout of {self.devices:,} devices is more than {MAX_DEVICES:,}")
        if self.ep > 1 and (self.ep % self.tp or (self.tp * self.dp) % self.ep):
            raise ForerunError(
                f"ep={self.ep} must be a multiple of tp={self.tp} and divide tp x dp = {self.tp * self.dp}: experts "
                "are divided among whole groups of tensor parallelism"
            )

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    def __str__(self) -> str:
        usual = Layout()
        said = [
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)
        ]
        return " ".join(said).replace("sp=True", "sp") or "one device"


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not least <= number <= MAX_DEVICES:
        raise ForerunError(f"{name} must be a whole number of {least} or more, got {value!r}")
    return number
