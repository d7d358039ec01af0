"""python -m forerun.measure.core.ceilings --out FILE: the ceilings of this machine's device, as one JSON object."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forerun._util.documents import write_json
from forerun.errors import ForerunError

from .. import meters
from . import WHOLE_S, measure


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="forerun.measure.core.ceilings", description=__doc__)
    parser.add_argument("--out", required=True, type=Path, help="the file; written anew after every part")
    parser.add_argument("--budget", type=float, help=f"seconds that it may take; {WHOLE_S:.0f} on a GPU")
    parser.add_argument("--device", default="auto", help="auto, or the name of a meter: cuda, cpu, ...")
    args = parser.parse_args(argv)
    try:
        meter = meters.meter_for(args.device)
    except ForerunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    record = measure(
        meter,
        args.budget,
        lambda known: write_json(args.out, known),
        lambda done, total: print(f"{done} of {total} parts", flush=True),
    )
    for name, seconds in record["spent_s"].items():
        print(f"  {name}: {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
