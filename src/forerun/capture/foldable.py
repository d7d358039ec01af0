"""Whether a folded model represents the whole one, checked by counting the calls of both.

Each runs once, unrecorded, with its calls counted by name and shape, those of a folded block times its repeats.
Anything that depends on its place in the stack (a mask, a cache), or works between the blocks, shows as a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import nn

from forerun.capture.capture import census
from forerun.capture.fold import fold, folded_size, folded_stacks, parameter_bytes
from forerun.capture.known_values import has_values
from forerun.capture.recorder import TooManyCalls
from forerun.capture.steps import Inputs, as_step
from forerun.workload import Workload

Count = Counter[tuple[Any, ...]]
#: From the most calls that a pass may launch to the stacks that can be folded.
Stacks = Callable[[int | None], frozenset[str]]


class Folding:
    """Which stacks of blocks of a module can be folded when it runs on such inputs. Counts are cached."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        make_inputs: Callable[[int], Inputs],
        workload: Workload,
        mask_density: float = 1.0,
    ) -> None:
        self._build, self._make_inputs = build, make_inputs
        self._workload, self._mask_density = workload, mask_density
        self._known: tuple[frozenset[str], Count | None] | None = None
        self._whole_bytes = 0

    def stacks(self, most_calls: int | None = None) -> frozenset[str]:
        """The stacks that can be folded: the folded model launches exactly what the whole one does.

        For a model with a tower for images or audio, whose layers are often read at certain depths, the stacks are also
        tried one by one. TooManyCalls is raised where the module launches more than `most_calls`.
        """
        every, counts = self._folded(most_calls)
        towers = has_values(self._make_inputs(2))
        if not every or (counts is None and not (towers and len(every) > 1)):
            return frozenset()
        if counts is not None and most_calls is not None and counts.total() > most_calls:
            raise TooManyCalls  # the whole model need not run for that
        try:
            whole = self._count(self._build(), {}, most_calls)
        except TooManyCalls:
            raise
        except Exception:  # noqa: BLE001 - the capture will raise it again
            return frozenset()
        if counts == whole:
            return every
        if not towers or len(every) == 1:
            return frozenset()
        single = frozenset(stack for stack in every if self._with(frozenset({stack}), most_calls) == whole)
        return single if len(single) < 2 or self._with(single, most_calls) == whole else frozenset()

    def calls(self) -> int:
        """How many calls a pass launches. The folded module is counted where it runs: it takes less time, and it loops
        over its tokens if the whole one does."""
        _, counts = self._folded(None)
        return (counts if counts is not None else self._count(self._build(), {}, None)).total()

    @property
    def counted(self) -> int | None:
        """The same, cached."""
        return None if self._known is None or self._known[1] is None else self._known[1].total()

    def _folded(self, most_calls: int | None) -> tuple[frozenset[str], Count | None]:
        """All stacks, and the calls of the module with all of them folded; None where it fails."""
        if self._known is None:
            model = self._build()
            self._whole_bytes = parameter_bytes(model)
            times = fold(model)
            self._known = folded_stacks(times), self._count_folded(model, times, most_calls) if times else None
        return self._known

    def _with(self, stacks: frozenset[str], most_calls: int | None) -> Count | None:
        model = self._build()
        return self._count_folded(model, fold(model, stacks), most_calls)

    def _count_folded(self, model: nn.Module, times: dict[str, int], most_calls: int | None) -> Count | None:
        if folded_size(model, times) != self._whole_bytes:
            return None
        try:
            return self._count(model, times, most_calls)
        except TooManyCalls:
            raise
        except Exception:  # noqa: BLE001 - a model that depends on its depth; a real fault appears in the whole one
            return None

    def _count(self, model: nn.Module, times: dict[str, int], most_calls: int | None) -> Count:
        inputs = self._make_inputs(2)
        step = as_step(model, inputs, self._workload)
        return census(model, step.once, times, self._mask_density, has_values(inputs), most_calls)
