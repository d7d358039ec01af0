"""The command line that makes the same prediction."""

from __future__ import annotations

import shlex

from forerun.device import Device
from forerun.runtimes.registry import USUAL
from forerun.workload import Workload

_OPTIONS = {
    "mode": "--mode", "seq_len": "--seq-len", "optimizer": "--optimizer", "amp": "--amp", "runtime": "--runtime",
    "task": "--task", "images": "--images", "new_tokens": "--new-tokens", "decoding": "--decoding",
    "prompt": "--prompt", "cache": "--cache",
}  # fmt: skip
_USUAL = {"mode": "inference", "runtime": USUAL}


def predict_command(workload: Workload, device: Device) -> str | None:
    """`forerun predict` with all settings of a workload; None where the model is not a name that a command can take."""
    if not isinstance(workload.model, str):
        return None
    words = ["forerun", "predict", workload.model, "--device", device.id, "--batch", str(workload.batch)]
    words += ["--dtype", workload.shown_dtype]
    for name, option in _OPTIONS.items():
        value = getattr(workload, name)
        if value is not None and value != _USUAL.get(name):
            words += [option, str(value)]
    shape = workload.input_shape
    for name, sizes in shape.items() if isinstance(shape, dict) else [("", shape)] if shape else []:
        words += ["--input-shape", (f"{name}=" if name else "") + ",".join(map(str, sizes))]
    if workload.image_size is not None:
        words += ["--image-size", "x".join(map(str, workload.image_size))]
    words += ["--channels-last"] * workload.channels_last + ["--trust-remote-code"] * workload.trust_remote_code
    return shlex.join([*words, "--no-measured"])
