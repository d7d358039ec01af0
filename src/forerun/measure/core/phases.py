"""The phases by name, and the run of one of them in this process."""

from __future__ import annotations

import sys
from typing import Any

from .batch_limit_phase import BatchLimits
from .curve_phase import Curves
from .kernel_phase import Kernels
from .operator_phase import Operators
from .serving_phase import Serving
from .tabular_phase import TabularPhase
from .timing_phase import Timing
from .worker import Worker

PHASES: dict[str, type[Worker] | type[BatchLimits]] = {
    phase.phase: phase for phase in (Timing, Kernels, Operators, Curves, BatchLimits, Serving, TabularPhase)
}


def main(args: Any) -> int:
    """Runs the phase that the supervisor started this process for."""
    worker = PHASES[args.phase](args)
    with worker.rows:
        code = worker.run()
    sys.stdout.flush()
    return code
