"""What can go wrong while measuring, other than a failure of the call itself."""

from __future__ import annotations


class CapturePoisonedError(Exception):
    """A failed capture of a graph left the process unusable; the supervisor starts another one."""


class CaseTimeoutError(Exception):
    """A case took longer than its limit."""


class TooSlowError(Exception):
    """A single call is longer than the protocol measures."""


class CacheHeldTwiceError(Exception):
    """The call ran; timing it needs its KV cache twice, once to put back, and that does not fit."""
