"""Settings in a name, `depth=6,filters=32`: one reader for every family of models that is named by its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forerun.errors import ForerunError, did_you_mean


def read_settings(
    name: str, parts: Iterable[str], limits: Mapping[str, tuple[int, int]], allowed: Iterable[str] | None = None
) -> dict[str, int]:
    """The whole numbers in `parts`, each within its limits; a ForerunError names the first that is wrong."""
    wanted = tuple(limits if allowed is None else allowed)
    settings: dict[str, int] = {}
    for part in parts:
        key, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or key not in wanted:
            raise ForerunError(f"'{part}' in '{name}' is not one of {', '.join(wanted)}.{did_you_mean(key, wanted)}")
        if key in settings:
            raise ForerunError(f"'{key}' stands twice in '{name}'.")
        low, high = limits[key]
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ForerunError(f"{key}={text} in '{name}' must be a whole number from {low} to {high}.")
        settings[key] = int(text)
    return settings
