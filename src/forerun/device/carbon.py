"""Carbon intensity of electricity: grams of CO2-equivalent per kWh by country and cloud region, and PUE by cloud."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.device.reading import CATALOG, key, read_yaml, unknown
from forerun.errors import ForerunError

_NO_PUE = "no data centre named, so only the accelerator's own electricity is counted"
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Grid:
    """Electricity somewhere. `pue` is what the building adds (cooling, losses) per kWh of computing."""

    id: str
    name: str
    g_per_kwh: float
    year: str
    source: str
    pue: float | None
    pue_source: str  # or, when pue is None, why
    country: str | None = None  # the id of its country's grid; of a country its own


def load_grid(region: str | Grid) -> Grid:
    """A country ('USA', 'us', 'Germany') or a cloud region ('aws/us-east-1', 'us-east-1', 'gcp/europe-west4')."""
    if isinstance(region, Grid):
        return region
    grids, names = _grids()
    candidates = names.get(key(region), ())
    if len(candidates) > 1:
        raise ForerunError(f"{region!r} is a region of more than one cloud: write {' or '.join(candidates)}")
    if not candidates:
        raise unknown("region", region, [*names], "Give a country, or a cloud region such as aws/us-east-1.")
    return grids[candidates[0]]


def find_grid(id_: str) -> Grid | None:
    """The grid with exactly this id ('DEU', 'aws/us-east-1'), or None."""
    return _grids()[0].get(id_)


def grid_ids() -> list[str]:
    """Every grid: ISO 3166 alpha-3 country codes, and cloud regions as cloud/region."""
    return sorted(_grids()[0])


def carbon_g(energy_j: float, grid: str | Grid) -> float:
    """Grams of CO2-equivalent for this energy at the accelerator, with the building's share where a PUE is known."""
    if energy_j < 0:
        raise ForerunError(f"energy_j must not be negative, got {energy_j}")
    where = load_grid(grid)
    return energy_j / JOULES_PER_KWH * where.g_per_kwh * (where.pue or 1.0)


@cache
def _grids() -> tuple[dict[str, Grid], dict[str, tuple[str, ...]]]:
    """All grids by id, and every name to the ids it may mean (a region name can occur in two clouds)."""
    content = read_yaml(CATALOG / "carbon.yaml")
    sources = content["sources"]
    grids: dict[str, Grid] = {}
    names: dict[str, tuple[str, ...]] = {}

    def put(grid: Grid, *called: str) -> None:
        if grid.id in grids:
            raise ForerunError(f"carbon.yaml: {grid.id} is listed twice")
        grids[grid.id] = grid
        for name in dict.fromkeys(map(key, (grid.id, *called))):
            names[name] = (*names.get(name, ()), grid.id)

    country_source = sources[content["country_source"]]["title"]
    for iso3, row in content["countries"].items():
        grid = Grid(iso3, row["name"], float(row["g_per_kwh"]), str(row["year"]), country_source, None, _NO_PUE, iso3)
        put(grid, row["iso2"], row["name"], *row.get("also", ()))
    for cloud, entry in content["clouds"].items():
        for region, row in entry["regions"].items():
            put(_region(cloud, region, row, entry, content, grids), region)
    return grids, names


def _region(
    cloud: str, region: str, row: dict[str, Any], entry: dict[str, Any], content: dict[str, Any], grids: dict[str, Grid]
) -> Grid:
    """A cloud region: its own intensity where one is published, else its country's; its own PUE, else the cloud's."""
    sources = content["sources"]
    country = grids[row["country"]]
    if "g_per_kwh" in row:
        value, year, source = float(row["g_per_kwh"]), str(entry["year"]), sources[entry["source"]]["title"]
    else:
        value, year = country.g_per_kwh, country.year
        source = f"{country.source}; the whole of {country.name}, no value for the region itself"
    pue_source = sources[entry["pue_source"]]
    return Grid(
        id=f"{cloud}/{region}",
        name=f"{row['name']}, {country.name}",
        g_per_kwh=value,
        year=year,
        source=source,
        pue=float(row.get("pue", entry["pue"])),
        pue_source=f"{pue_source['title']}, {pue_source['date']}" + ("" if "pue" in row else " (average of the cloud)"),
        country=country.id,
    )
