"""Which cloud regions a word such as 'eu', 'Germany' or 'gcp/europe-west4' stands for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from forerun.device.carbon import Grid, grid_ids, load_grid
from forerun.device.cloud import Instance
from forerun.device.reading import CATALOG, key, read_yaml, unknown
from forerun.errors import ForerunError


class Regions:
    """The cloud regions that some words allow."""

    def __init__(self, words: Sequence[str]) -> None:
        allowed: dict[str, Grid] = {}
        self.countries: set[str] = set()  # allowed as a whole
        for word in words:
            countries = _countries(word)
            self.countries |= countries
            grids = [g for g in _cloud_regions() if g.country in countries] if countries else _named(word)
            allowed |= {grid.id: grid for grid in grids}
        self.grids = tuple(allowed.values())

    def grid_for(self, instance: Instance) -> Grid | None:
        """The allowed region of the instance's cloud with the cleanest electricity, or None where none is allowed.

        A cloud whose regions are not in the catalogue is allowed in the country of its price alone.
        """
        cloud_grids = [grid for grid in self.grids if grid.id.startswith(f"{instance.cloud}/")]
        if cloud_grids:
            return min(cloud_grids, key=lambda grid: (grid.g_per_kwh * (grid.pue or 1.0), grid.id))
        if instance.cloud in {grid.id.partition("/")[0] for grid in _cloud_regions()}:
            return None
        country = load_grid(instance.region).country
        return load_grid(country) if country in self.countries else None


def group_names() -> list[str]:
    """The words that stand for several countries."""
    return list(_groups())


def _countries(word: str) -> set[str]:
    """The countries of a group, or the country itself; empty for the name of a cloud region."""
    group = _groups().get(key(word))
    if group is not None:
        return set(group["countries"])
    try:
        grid = load_grid(word)
    except ForerunError:
        return set()
    return {grid.id} if grid.id == grid.country else set()


def _named(word: str) -> list[Grid]:
    """The cloud regions of this name, of whatever cloud."""
    grids = [grid for grid in _cloud_regions() if key(word) in (key(grid.id), key(grid.id.partition("/")[2]))]
    if not grids:
        known = [*_groups(), *(id_ for grid in _cloud_regions() for id_ in (grid.id, grid.id.partition("/")[2]))]
        hint = f"Give {', '.join(_groups())}, a country, or a cloud region such as gcp/europe-west4."
        raise unknown("region", word, known, hint)
    return grids


@cache
def _cloud_regions() -> tuple[Grid, ...]:
    return tuple(load_grid(id_) for id_ in grid_ids() if "/" in id_)


@cache
def _groups() -> dict[str, Any]:
    groups: dict[str, Any] = read_yaml(CATALOG / "regions.yaml")["groups"]
    return groups
