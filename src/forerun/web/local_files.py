"""Local files that an assistant may name over standard input and output: those in allowed folders.

The assistant was started by the user, and so was forerun; it may still read only what the user allows. Not used
over HTTP, where no path is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.frontends import frontends, is_file, is_known_name

_DEVICES = (".yaml", ".yml")
#: Files of a folder that are checked for links out of it. A model's folder has some dozens.
_MOST_FILES = 10_000


class LocalFiles:
    """The files in some folders. Relative paths are looked up in each of them, in order."""

    def __init__(self, folders: Sequence[Path]) -> None:
        missing = [str(folder) for folder in folders if not folder.expanduser().is_dir()]
        if missing:
            raise ForerunError(f"there is no folder {missing[0]}")
        self._folders = [folder.expanduser().resolve() for folder in folders]

    def opened(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request with its files as `Path`s, which JSON cannot express; names stay strings."""
        opened = {**request, "model": self.model(request["model"])} if "model" in request else dict(request)
        if "device" in opened:
            opened["device"] = self._device(opened["device"])
        if opened.get("devices"):
            opened["devices"] = [self._device(device) for device in opened["devices"]]
        return opened

    def model(self, name: str) -> str | Path:
        """A model's file or folder, or the name itself where it names none."""
        code = [one for one in frontends().values() if one.runs_code and one.claims(name.partition(":")[0])]
        if code:
            raise ForerunError(
                f"{short(name)} is Python code, which is not run for an assistant; export the model to ONNX, or use "
                "the command line"
            )
        if is_file(name) or name.startswith((".", "/", "~", "\\")):
            return self._checked(name)
        return self._checked(name) if self._is_here(name) and not is_known_name(name) else name

    def _is_here(self, name: str) -> bool:
        try:
            return any((folder / name).exists() for folder in self._folders)
        except OSError:  # a name that is too long for a file
            return False

    def _device(self, given: Any) -> Any:
        named = isinstance(given, str) and given.lower().endswith(_DEVICES)
        return self._checked(given) if named else given

    def _checked(self, name: str) -> Path:
        """The file of a path, which must be in an allowed folder after `..` and links are resolved."""
        try:
            places = [(folder / Path(name).expanduser()).resolve() for folder in self._folders]
            inside = [place for place in places if self._allowed(place)]
            here = next((place for place in inside if place.exists()), None)
            escapes = here is not None and here.is_dir() and self._leads_out(here)
        except (OSError, RuntimeError, ValueError) as error:  # loops of links, names too long, no home folder
            raise ForerunError(f"{short(name)} cannot be opened: {error}") from None
        if not inside or escapes:
            raise ForerunError(
                f"{short(name)} is outside the folders that may be read ({self._named()}); start "
                "forerun mcp with --folder to allow another"
            )
        if here is None:
            raise ForerunError(f"there is no file {short(name)} in {self._named()}")
        return here

    def _allowed(self, place: Path) -> bool:
        return any(place.is_relative_to(folder) for folder in self._folders)

    def _leads_out(self, folder: Path) -> bool:
        """Whether a link in a model's folder leads out of the allowed folders."""
        for count, path in enumerate(folder.rglob("*")):
            if count >= _MOST_FILES:
                raise ForerunError(f"{folder.name} has more than {_MOST_FILES:,} files: name the model's own folder")
            if path.is_symlink() and not self._allowed(path.resolve()):
                return True
        return False

    def _named(self) -> str:
        return ", ".join(str(folder) for folder in self._folders)
