"""Packages that are installed beside forerun, as its registries see them: entry points without metadata on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forerun._util import registry as law
from forerun._util.registry import Registry


@contextmanager
def installed(registry: Registry[Any], *points: Any, alone: bool = False) -> Iterator[None]:
    """The registry finds these entry points beside those that are installed, or `alone`."""
    plain = law.entry_points
    with pytest.MonkeyPatch.context() as patch:
        mine = registry.groups[0]
        patch.setattr(law, "entry_points", lambda group: [
            *(() if alone and group in registry.groups else plain(group=group)), *(points if group == mine else ()),
        ])  # fmt: skip
        registry.reset()
        yield
    registry.reset()
