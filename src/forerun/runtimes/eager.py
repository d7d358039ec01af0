"""Eager PyTorch: every op is launched as it was captured, and the host pays for each."""

from __future__ import annotations

from forerun.runtimes.base import Runtime


class Eager(Runtime):
    name = "eager"
