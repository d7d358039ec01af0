"""The command line: `main` runs a command and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs the command line and exits with its code."""
    gc.set_threshold(100_000, 50, 50)  # importing torch makes a million permanent objects: collecting is wasted
    code = _run()
    sys.stdout.flush()
    sys.stderr.flush()
    if "torch" in sys.modules:
        os._exit(code)  # skips the tear-down of torch, which takes most of a second
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
