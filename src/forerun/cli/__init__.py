"""The command line: `forerun predict`, `compare`, `explain`, `devices`, `models`, `doctor`, `install`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; a user's mistake ends in one line and exit code 2."""
    from forerun.cli.app import app
    from forerun.errors import ForerunError

    try:
        app()
    except ForerunError as e:
        print(f"forerun: {e}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
