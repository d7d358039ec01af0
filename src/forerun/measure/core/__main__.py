"""python -m forerun.measure.core --spec SPEC --out ROWS.jsonl: measures within a budget, continues an earlier file."""

from __future__ import annotations

import argparse
import sys


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="forerun.measure.core", description=__doc__)
    parser.add_argument("--spec", action="append", default=[], help="a sweep spec; may be given several times")
    parser.add_argument("--share", action="append", type=float, help="share of the time of each --spec, in order")
    parser.add_argument("--out", required=True, help="file of rows, one JSON object per line; appended to")
    parser.add_argument("--resume", action="append", default=[], help="file of earlier rows that need no measuring")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds after which it stops by itself")
    parser.add_argument("--case-limit", type=float, default=20.0, help="seconds that one case may take")
    parser.add_argument("--seed", type=int, default=0, help="order of the models")
    parser.add_argument("--device", default="auto", help="auto, or the name of a meter: cuda, cpu, ...")
    parser.add_argument("--no-host-probe", action="store_true", help="do not measure the host's launch cost")
    parser.add_argument("--restarts", type=int, default=12, help="how often a broken worker is replaced")
    parser.add_argument("--cooldown", type=float, default=0.0, help="seconds of rest before each model")
    parser.add_argument("--data", help="images (.npz) that the runs of a curve spec train on")
    parser.add_argument("--timing-share", type=float, help="share of the budget for timing (0.64; 0.76 without ops)")
    parser.add_argument(
        "--operator-share", type=float, default=0.16, help="share kept for operators, where a spec has them"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--phase", default="timing", help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> int:
    from forerun.errors import ForerunError

    args = arguments(sys.argv[1:])
    try:
        return run(args)
    except ForerunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """Starts the phases one after another, each in a process of its own, or is such a process."""
    from . import meters

    meters.check_name(args.device)
    if args.worker:
        from . import phases

        return phases.main(args)
    from . import supervisor

    return supervisor.main(args, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
