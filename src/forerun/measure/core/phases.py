"""The phases by name, and the run of one of them in this process."""

from __future__ import annotations

import sys
from typing import Any

from .curve_phase import Curves
from .kernel_phase import Kernels
from .operator_phase import Operators
from .timing_phase import Timing
from .worker import Worker

PHASES: dict[str, type[Worker]] = {phase.phase: phase for phase in (Timing, Kernels, Operators, Curves)}


def main(args: Any) -> int:
    """Runs the phase that the supervisor started this process for."""
    worker = PHASES[args.phase](args)
    with worker.rows:
        code = worker.run()
    sys.stdout.flush()
    return code
