"""The structure of the source: no circles of imports, no package that holds too much."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import grimp
import networkx
import pytest

SOURCE = Path(__file__).parents[2] / "src" / "forerun"
#: The largest share of all lines that one package may hold.
SHARE = 0.12


@pytest.fixture(scope="module")
def imports() -> networkx.DiGraph:
    """Every import of a module by another, inside functions and for type checkers too."""
    graph = grimp.build_graph("forerun", exclude_type_checking_imports=False, cache_dir=None)
    pairs = [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]
    return networkx.DiGraph(pairs)


def test_no_modules_import_each_other_in_a_circle(imports: networkx.DiGraph) -> None:
    assert imports.number_of_edges() > 1000
    circles = [sorted(results) for results in networkx.strongly_connected_components(imports) if len(results) > 1]
    assert circles == []


def test_no_package_holds_more_than_its_share() -> None:
    lines: Counter[str] = Counter()
    for file in SOURCE.rglob("*.py"):
        lines[file.relative_to(SOURCE).parts[0]] += len(file.read_text(encoding="utf-8").splitlines())
    total = sum(lines.values())
    assert {name: round(count / total, 3) for name, count in lines.items() if count > SHARE * total} == {}
