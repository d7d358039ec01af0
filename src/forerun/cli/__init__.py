"""The command line: `main` runs a command and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import gc
import os
import sys

#: Options whose names differ from the arguments of the Python functions.
_OPTIONS = {"max_latency_ms": "--max-latency", "loading_samples_per_s": "--loading-rate",
    "max_ttft_ms": "--max-ttft", "max_itl_ms": "--max-itl",
}  # fmt: skip

#: Commands that multiply small matrices alone: starting threads for them takes NumPy a third of its import.
_QUICK = ("predict", "compare", "explain", "adapt")


def main() -> None:
    """Runs the command line and exits with its code."""
    if sys.argv[1:2] and sys.argv[1] in _QUICK:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000, 50, 50)  # importing torch makes a million permanent objects: collecting is wasted
    code = run(sys.argv[1:])
    if "torch" in sys.modules:
        os._exit(code)  # skips the shutdown of torch, which takes most of a second
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code, after all output has been flushed."""
    from forerun.cli.terminal import print_what_can_be_printed

    print_what_can_be_printed()
    as_json = "--json" in arguments
    try:
        code = _code(arguments, as_json)
        sys.stdout.flush()
        sys.stderr.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        place = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, (str, bytes)) else ""
        reason = f"{error.strerror or error}{place}"
        try:
            return _failed(reason if place else f"the output cannot be written: {reason}", as_json)
        except OSError:  # the output itself cannot be written
            _drop_output()
            return _failed(f"the output cannot be written: {reason}", as_json=False)


def _code(arguments: list[str], as_json: bool) -> int:
    from forerun._util import extras
    from forerun.cli.app import app
    from forerun.errors import ArgumentError, ForerunError

    try:
        if not as_json:
            app(arguments)
            return 0
        code = app(arguments, standalone_mode=False)  # a wrong option is raised and not printed
        return code if isinstance(code, int) else 0
    except ArgumentError as error:
        return _failed(error.in_options(_OPTIONS), as_json)
    except ForerunError as error:
        return _failed(str(error), as_json)
    except ModuleNotFoundError as error:
        if (missing := extras.behind(error, "this command")) is None:
            raise
        return _failed(str(missing), as_json)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(bool(error.code))
    except KeyboardInterrupt:
        return 130
    except OSError:
        raise
    except Exception as error:
        if not hasattr(error, "format_message"):  # the module of Click's errors depends on the version of Typer
            raise
        return _failed(str(error.format_message()), as_json)


def _failed(sentence: str, as_json: bool) -> int:
    """Prints the error, as JSON if requested."""
    if as_json:
        import json

        print(json.dumps({"error": sentence}, indent=2), flush=True)
    else:
        from forerun._util.readable import visible

        print(f"forerun: {visible(' '.join(sentence.splitlines()))}", file=sys.stderr, flush=True)
    return 2


def _drop_output() -> None:
    """Discards pending output, so that Python does not try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
