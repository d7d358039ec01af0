"""Grams of CO2 per call: its energy, the carbon intensity of the grid, and the PUE of the data centre."""

from __future__ import annotations

from forerun.device.carbon import Grid, carbon_g, find_grid, load_grid
from forerun.device.cloud import Instance
from forerun.prediction import Estimate


def choose_grid(region: str | None, instance: Instance | None) -> Grid:
    """The grid of the region or, without one, of the instance; the world's average where neither is given or known."""
    if region is not None:
        return load_grid(region)
    local = find_grid(f"{instance.cloud}/{instance.region}") if instance is not None else None
    return local or load_grid("world")


def carbon(energy_j: Estimate, grid: Grid) -> Estimate:
    """Grams of CO2 per call."""
    return energy_j.scaled(carbon_g(1.0, grid), "g")


def grid_line(grid: Grid, what: str = "accelerator") -> str:
    """The grid as a remark beside the estimate: its intensity, year and PUE, or whose energy alone it is."""
    building = f", PUE {grid.pue}" if grid.pue else f", {what} only"
    year = f" in {grid.year}" if grid.year.isdigit() else ""
    return f"{grid.name}: {grid.g_per_kwh:.0f} g/kWh{year}{building}"
