"""The few errors a user can meet. The library raises them; the CLI turns them into one line and exit code 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class ForerunError(Exception):
    """Something the user can put right. The message is one clear sentence."""


class ArgumentError(ForerunError):
    """An argument that cannot be as it is. The text has a {} for each name, which the command line fills with the
    names of its options."""

    def __init__(self, text: str, *names: str, **values: object) -> None:
        super().__init__(text.format(*names, **values))
        self.text, self.names, self.values = text, names, values

    def in_options(self, also_called: Mapping[str, str]) -> str:
        """The message with options for names: `max_hours` is --max-hours; `also_called` has those that differ."""
        named = (also_called.get(name, f"--{name.replace('_', '-')}") for name in self.names)
        return self.text.format(*named, **self.values)


class MissingPackage(ForerunError):
    """An optional package is needed for this model; the message names the one command that adds it."""

    def __init__(self, what: str, package: str, command: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed; add it with: {command}")
        self.what = what
        self.package = package
        self.command = command


def did_you_mean(name: str, known: Iterable[str], limit: int = 3) -> str:
    """' Did you mean a, b?' for a near miss, or '' when nothing is near. Never used to pick a match."""
    from difflib import get_close_matches  # of use after a mistake alone

    by_lower = {k.lower(): k for k in known}
    near = get_close_matches(str(name).lower(), by_lower, n=limit, cutoff=0.6)
    return f" Did you mean {', '.join(by_lower[n] for n in near)}?" if near else ""
