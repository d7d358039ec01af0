"""TensorRT can be asked for by name, and nobody measured it here."""

from __future__ import annotations

from forerun.runtimes.base import Runtime


class TensorRT(Runtime):
    name = "tensorrt"
    also_called = ("trt",)
    measured = False
    calls_modules = False
