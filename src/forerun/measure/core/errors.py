"""Errors of the measurement itself, as opposed to failures of the measured call."""

from __future__ import annotations


class CapturePoisonedError(Exception):
    """A failed graph capture left the process unusable; the supervisor starts another one."""


class CaseTimeoutError(Exception):
    """A case exceeded its time limit."""


class TooSlowError(Exception):
    """A single call exceeds the protocol's time limit."""


class CacheHeldTwiceError(Exception):
    """The call ran, but timing needs a second copy of its KV cache for resetting, which does not fit in memory."""


class EngineError(Exception):
    """A serving engine failed, or cannot serve the model."""
