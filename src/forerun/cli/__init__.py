"""The command line: `forerun predict`, `compare`, `explain`, `measure`, `verify`, `sweep`, `data`, and what helps."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs the command line; a user's mistake ends in one line and exit code 2."""
    gc.set_threshold(100_000, 50, 50)  # importing torch makes a million objects that stay: looking for garbage is waste
    code = _run()
    sys.stdout.flush()
    sys.stderr.flush()
    if "torch" in sys.modules:
        os._exit(code)  # nothing is left to do, and taking torch apart again takes most of a second
    sys.exit(code)


def _run() -> int:
    from forerun.cli.app import app
    from forerun.errors import ForerunError

    try:
        app()
    except ForerunError as e:
        print(f"forerun: {e}", file=sys.stderr)
        return 2
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else int(bool(e.code))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return 0
