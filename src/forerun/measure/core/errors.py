"""What can go wrong while measuring, apart from the call itself failing."""

from __future__ import annotations


class CapturePoisonedError(Exception):
    """A failed CUDA-graph capture left the process unusable; the supervisor starts another one."""


class CaseTimeoutError(Exception):
    """A case took longer than its limit."""


class TooSlowError(Exception):
    """A single call is longer than the protocol measures."""
