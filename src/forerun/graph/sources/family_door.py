"""Front door: our own families of networks by their settings, `cnn:depth=6,filters=32`; `families` has what it does."""

from __future__ import annotations

from typing import Any

from forerun.graph.ir import Graph
from forerun.graph.sources import families
from forerun.graph.sources.door import Door
from forerun.workload import Workload


class FamilyDoor(Door):
    """A member of a family of networks, named by its settings."""

    takes = "a family of networks with its settings, such as cnn:depth=6,filters=32"
    priority = 100

    def matches(self, model: Any) -> bool:
        return families.matches(model)

    def key(self, model: Any, workload: Workload) -> dict[str, Any]:
        return families.key(model, workload)

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        return families.load(model, workload)
