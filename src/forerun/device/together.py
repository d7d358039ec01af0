"""Several devices that are asked about together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from forerun.device.device import Device

T = TypeVar("T")


class Devices(tuple[Device, ...]):
    """Devices in their order, with what was worked out about all of them. As the key of a cache they are hashed once: a
    table asks a hundred devices thousands of times."""

    def __hash__(self) -> int:
        return self.once("hash", lambda: tuple.__hash__(self))

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returns of these devices, worked out once."""
        made: dict[Any, Any] = self.__dict__.setdefault("_made", {})
        if key not in made:
            made[key] = make()
        value: T = made[key]
        return value

    def only(self, places: Iterable[int]) -> Devices:
        """The devices at these places."""
        chosen = tuple(places)
        return self.once(chosen, lambda: Devices(self[at] for at in chosen))


def together(devices: Sequence[Device]) -> Devices:
    return devices if isinstance(devices, Devices) else Devices(devices)
