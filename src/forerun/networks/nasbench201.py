"""Networks of NAS-Bench-201 by the string of their cell: `nasbench201:|nor_conv_3x3~0|+|none~0|skip_connect~1|+|…|`.

A cell has four nodes; each part of the string lists the edges into one of them, an operation and the node it starts at.
The network is that of Dong and Yang (2020): a stem, three stages of five equal cells at 16, 32 and 64 channels, a
residual block of stride 2 between two stages, a pool and one linear layer, for images of 32 x 32. As in the authors'
code, `none` multiplies by zero, and a node sums its edges from zero on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forerun.errors import ForerunError
from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import nn

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
#: The edges of a cell in the order of the string: from which node to which.
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
CELLS, CHANNELS, IMAGE, CLASSES = 5, (16, 32, 64), 32, 10


def cell_of(settings: Settings) -> str:
    """The string of a cell, from the place in OPERATIONS of each edge."""
    words = {edge: f"{OPERATIONS[settings[_setting(edge)]]}~{edge[0]}" for edge in EDGES}
    nodes = ("|".join(words[edge] for edge in EDGES if edge[1] == node) for node in (1, 2, 3))
    return "+".join(f"|{node}|" for node in nodes)


def _setting(edge: tuple[int, int]) -> str:
    return f"from{edge[0]}to{edge[1]}"


def folded(cell: str) -> str:
    """The cell as a runtime runs it that folds away what is zero or reaches no output: those edges are `none`."""
    words = re.findall(r"(\w+)~\d", cell)
    live = {edge: word for edge, word in zip(EDGES, words, strict=True) if word != "none"}
    for _ in EDGES:
        starts, ends = {start for start, _ in live} | {3}, {end for _, end in live} | {0}
        live = {edge: word for edge, word in live.items() if edge[0] in ends and edge[1] in starts}
    return cell_of({_setting(edge): OPERATIONS.index(live.get(edge, "none")) for edge in EDGES})


@dataclass(frozen=True)
class CellFamily(Family):
    """A family whose names are the strings of cells."""

    def parse(self, name: str) -> Settings:
        cell = name.partition(":")[2]
        if not cell.startswith("|"):
            return super().parse(name)
        words = re.findall(r"(\w+)~\d", cell)
        if len(words) == len(EDGES) and set(words) <= set(OPERATIONS):
            settings = {_setting(edge): OPERATIONS.index(word) for edge, word in zip(EDGES, words, strict=True)}
            if cell_of(settings) == cell:
                return settings
        raise ForerunError(
            f"'{name[:150]}' is no cell of NAS-Bench-201: six of {', '.join(OPERATIONS)}, written |op~0|+|op~0|op~1|+"
            "|op~0|op~1|op~2|."
        )

    def name(self, **settings: int) -> str:
        filled = {key: settings.get(key, setting.default or 0) for key, setting in self.settings.items()}
        return f"{self.prefix}:{cell_of(filled)}"


def build(**settings: int) -> nn.Module:
    """The network with this cell; it takes (batch, 3, 32, 32) and returns (batch, 10)."""
    from torch import nn

    operations = [OPERATIONS[settings[_setting(edge)]] for edge in EDGES]

    class Zero(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mul(0.0)

    def convolution(into: int, out: int, kernel: int, stride: int = 1) -> nn.Module:
        made = nn.Conv2d(into, out, kernel, stride, padding=kernel // 2, bias=False)
        return nn.Sequential(nn.ReLU(), made, nn.BatchNorm2d(out))

    def operation(name: str, width: int) -> nn.Module:
        if name == "avg_pool_3x3":
            return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        if name.startswith("nor_conv"):
            return convolution(width, width, int(name[-1]))
        return Zero() if name == "none" else nn.Identity()

    class Cell(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.edges = nn.ModuleList(operation(name, width) for name in operations)

        def forward(self, x: Any) -> Any:
            nodes = [x]
            for node in (1, 2, 3):
                into = [(edge, start) for edge, (start, end) in zip(self.edges, EDGES, strict=True) if end == node]
                nodes.append(sum(edge(nodes[start]) for edge, start in into))
            return nodes[-1]

    class Reduction(nn.Module):
        def __init__(self, into: int, out: int) -> None:
            super().__init__()
            self.body = nn.Sequential(convolution(into, out, 3, stride=2), convolution(out, out, 3))
            self.shortcut = nn.Sequential(nn.AvgPool2d(2, 2), nn.Conv2d(into, out, 1, bias=False))

        def forward(self, x: Any) -> Any:
            return self.shortcut(x) + self.body(x)

    first, last = CHANNELS[0], CHANNELS[-1]
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, padding=1, bias=False), nn.BatchNorm2d(first)]
    for stage, width in enumerate(CHANNELS):
        layers += [Reduction(CHANNELS[stage - 1], width)] if stage else []
        layers += [Cell(width) for _ in range(CELLS)]
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.BatchNorm2d(last), nn.ReLU(), pool, nn.Flatten(), nn.Linear(last, CLASSES))


FAMILY = CellFamily(
    prefix="nasbench201",
    kind="NAS-Bench-201 cell",
    settings={_setting(edge): Setting(OPERATIONS.index("nor_conv_3x3"), 0, len(OPERATIONS) - 1) for edge in EDGES},
    build=build,
    inputs=lambda s: {"": Input((3, IMAGE, IMAGE))},
)
