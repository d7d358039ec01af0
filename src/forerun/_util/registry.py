"""The registry of predictors, frontends, importers, meters and the like, for packages and for notebooks.

A package names its class under an entry point group in its metadata; a notebook registers a class or an object for its
process. Two packages may not use the same name, and a registered name may not hide an installed one; registering a
name again replaces the earlier object, as when a notebook's cell is run again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from forerun._util.installed import EntryPoint, entry_points
from forerun.errors import ForerunError, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes of one contract by name, or objects of such classes."""

    def __init__(
        self, what: str, contract: type, groups: Sequence[str], built_in: Mapping[str, str] | None = None
    ) -> None:
        self.what, self.contract = what, contract
        self.groups = groups  # the first is current; further ones are older names, still read
        self.built_in = built_in or {}  # known without installed metadata
        self._registered: dict[str, type[T] | T] = {}
        self._loaded: dict[str, type[T] | T] = {}
        self._made: dict[str, T] = {}

    @functools.cached_property
    def _points(self) -> dict[str, EntryPoint]:
        points = {name: EntryPoint(name, value, self.groups[0]) for name, value in self.built_in.items()}
        for point in (point for group in self.groups for point in entry_points(group=group)):
            known = points.setdefault(point.name, point)
            if known.value != point.value:
                raise ForerunError(f"two {self.what}s are called {point.name}: {known.value} and {point.value}")
        return points

    def names(self) -> list[str]:
        """Every name, those of installed packages first."""
        return [*self._points, *self._registered]

    def check(self, name: str, also: Sequence[str] = ()) -> None:
        """Raises a ForerunError with suggestions if the name is unknown; `also` are further known names."""
        known = [*also, *self.names()]
        if name not in known:
            hint = did_you_mean(name, known)
            raise ForerunError(f"no {self.what} is called {name!r}; known: {', '.join(known)}.{hint}")

    def load(self, name: str) -> type[T] | T:
        """The class of this name, or the object that was registered under it."""
        if name in self._registered:
            return self._registered[name]
        if name not in self._loaded:
            self.check(name)
            point = self._points[name]
            described = f"the {self.what} {name} ({point.value})"
            try:
                value = point.load()
            except Exception as error:
                raise ForerunError(f"{described} cannot be loaded: {error}") from error
            if not self._fits(value):
                raise ForerunError(f"{described} is no subclass of {self._contract}")
            self._loaded[name] = value
        return self._loaded[name]

    def kind(self, name: str) -> type[T]:
        """The class of this name."""
        value = self.load(name)
        return value if isinstance(value, type) else type(value)

    def made(self, name: str) -> T:
        """The object of this name; if it is a class, an instance made without arguments."""
        if name not in self._made:
            value = self.load(name)
            try:
                self._made[name] = value() if isinstance(value, type) else value
            except Exception as error:
                raise ForerunError(f"the {self.what} {name} cannot be made without arguments: {error}") from error
        return self._made[name]

    def register(self, thing: type[T] | T, name: str) -> None:
        """Adds a class of the contract, or an object of one, for this process."""
        if not self._fits(thing):
            raise ForerunError(f"{thing!r} is no subclass of {self._contract}, nor an object of one")
        if not isinstance(name, str) or not name.strip():
            raise ForerunError(f"a {self.what} needs a name, and {thing!r} has none")
        if name in self._points:
            raise ForerunError(
                f"a {self.what} called {name} is installed ({self._points[name].value}): register yours by another name"
            )
        self._registered[name] = thing
        self._made.pop(name, None)

    def reset(self) -> None:
        """Clears registered and loaded classes, and searches installed packages again."""
        self.__dict__.pop("_points", None)
        for known in (self._registered, self._loaded, self._made):
            known.clear()

    @property
    def _contract(self) -> str:
        return f"{self.contract.__module__}.{self.contract.__name__}"

    def _fits(self, thing: Any) -> bool:
        return issubclass(thing, self.contract) if isinstance(thing, type) else isinstance(thing, self.contract)
