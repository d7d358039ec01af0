"""Which dtypes a GPU multiplies on its tensor cores (AMD: matrix cores): by compute capability, else by its peaks."""

from __future__ import annotations

from forerun.device.device import Device

#: The first compute capability whose tensor cores take a dtype (CUDA C++ Programming Guide, compute capabilities).
_FIRST = {"fp16": 7.0, "int8": 7.2, "bf16": 8.0, "tf32": 8.0, "fp64": 8.0, "fp8": 8.9}
#: Tensor cores of cards for graphics (8.6, 8.9, 12.0) take no fp64.
_WITH_FP64 = (8.0, 9.0, 10.0)
#: Vector lanes do at most two FP16 or four INT8 operations where they do one FP32; units above that are matrix units.
_VECTOR_GAIN = {"fp16": 2.0, "bf16": 2.0, "int8": 4.0, "fp64": 1.0, "tf32": 1.0, "fp8": 4.0}
#: Kernel classes (graph.profile.CLASSES) for which libraries have kernels on vector lanes alone, whatever the dtype.
_NEVER = frozenset({"conv_depthwise", "conv_depthwise_backward", "fft"})
#: Fused attention splits a product of fp32 into three of TF32 where tensor cores take those.
_SPLIT = frozenset({"attention", "attention_backward"})


def runs_on_matrix_units(device: Device, kernel: str, unit: str) -> bool:
    """Whether an operator of a kernel class, in the arithmetic of this unit, runs on the device's tensor cores."""
    if unit == "fp32" and kernel in _SPLIT:
        unit = "tf32"
    return kernel not in _NEVER and on_matrix_units(device, unit)


def on_matrix_units(device: Device, unit: str) -> bool:
    """Whether the device's tensor cores take the arithmetic of this unit."""
    if unit not in _FIRST or not device.traits.is_board or not device.supports(unit):
        return False
    capability = device.compute_capability
    if capability is None:
        peak, plain = device.peak(unit), device.peak("fp32")
        return bool(peak and plain and peak > 1.1 * _VECTOR_GAIN[unit] * plain)
    return capability in _WITH_FP64 if unit == "fp64" else capability >= _FIRST[unit]
