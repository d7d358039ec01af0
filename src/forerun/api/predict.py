"""predict, predict_many and explain: the public face of forerun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.api.answers import answer, has_host
from forerun.api.arguments import several
from forerun.api.questions import check, given_model, profiled, workload_from
from forerun.api.tabular import predict_tabular, tabular_model
from forerun.device import Device, load_device
from forerun.device.threads import with_threads
from forerun.device.together import Devices
from forerun.errors import ArgumentError, ForerunError
from forerun.measure import watched
from forerun.measure.assumed_host import assume
from forerun.prediction import Prediction
from forerun.predictors.base import Predictor
from forerun.predictors.registry import load_predictor
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.api.explanation import Explanation
    from forerun.api.verification import Verification
    from forerun.predictors.attribution import Attribution


def predict(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    batch: int = 1,
    dtype: str | None = None,
    mode: str = "inference",
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    seq_len: int | None = None,
    optimizer: str | None = None,
    amp: str | None = None,
    runtime: str = "eager",
    region: str | None = None,
    instance: str | None = None,
    predictor: str | Path | Predictor = "default",
    task: str | None = None,
    trust_remote_code: bool = False,
    confidence: float = 0.9,
    host: str | float = "default",
    image_size: int | str | Sequence[int] | None = None,
    images: int | None = None,
    channels_last: bool = False,
    new_tokens: int | None = None,
    decoding: str | None = None,
    prompt: str | None = None,
    cache: str | None = None,
    tp: int = 1,
    pp: int = 1,
    measured: bool = True,
    epochs: int | None = None,
    dataset_size: int | None = None,
    threads: int | None = None,
) -> Prediction:
    """How `model` will run on `device`: every estimate with its interval, and what it is based on.

    Without `dtype`, a PyTorch module and a captured graph are answered in the dtype of their weights, a Hugging Face
    model in what its checkpoint is published in (its quantised weights included, but not under `amp`, in onnxruntime
    or in training, where they are dequantised), others in fp32; a note says so. A dtype that is given is that of the
    weights, too: those of a quantised checkpoint are dequantised.
    `predictor` is a name, a folder that `forerun train` wrote, or an object. `host` is how fast the machine around the
    device launches work: 'default' (this machine's where `device` is its own GPU and `forerun measure host` probed it
    within a day, else the reference host), 'reference', 'this' (as probed here), a name (`forerun hosts`), or how many
    times slower than the reference host. `threads` is how many cores of a CPU the call has, all of one socket by
    default. `image_size` (336, or height and width) and `images` are those of Hugging Face
    models that read images; in a prompt the tokens of the images come on top of `seq_len` tokens of text. `amp` is
    autocast over fp32 weights, in any mode; `channels_last` is PyTorch's memory format for images and convolutions.
    Mode generate is transformers' own loop: a prompt of `seq_len` tokens and `new_tokens` more, with `decoding` greedy,
    sample or beam, `prompt` full or padded, and `cache` dynamic or static.
    `tp` devices divide every layer (tensor parallel) and `pp` stages the layers (pipeline parallel): memory and fit are
    then those of one device, time, energy, power and cost those of all `tp x pp`.
    A path such as `my_unet.py:UNet` names your own code and runs it. With `measured=False` the case is predicted even
    where the store has its measurement. In training, `epochs` over `dataset_size` samples add `training` to the answer:
    time, energy, carbon and cost of the whole.
    """
    settings = {
        "batch": batch, "dtype": dtype, "mode": mode, "input_shape": input_shape, "seq_len": seq_len,
        "optimizer": optimizer, "amp": amp, "runtime": runtime, "task": task, "trust_remote_code": trust_remote_code,
        "image_size": image_size, "images": images, "channels_last": channels_last, "new_tokens": new_tokens,
        "decoding": decoding, "prompt": prompt, "cache": cache, "tp": tp, "pp": pp,
    }  # fmt: skip
    workload = given_model(model, settings)
    return predict_workload(
        workload, with_threads(load_device(device), threads), region=region, instance=instance, predictor=predictor,
        confidence=confidence, host=host, measured=measured, epochs=epochs, dataset_size=dataset_size,
    )  # fmt: skip


def predict_workload(
    workload: Workload,
    device: Device,
    *,
    region: str | None = None,
    instance: str | None = None,
    predictor: str | Path | Predictor = "default",
    measured: bool = True,
    confidence: float = 0.9,
    host: str | float = "default",
    epochs: int | None = None,
    dataset_size: int | None = None,
) -> Prediction:
    """`predict` for a workload and a device already at hand; `measured=False` never looks into the store."""
    if (tabular := tabular_model(workload.model)) is not None:
        for name, given, usual in (
            ("predictor", predictor, "default"),
            ("host", host, "default"),
            ("epochs", epochs, None),
            ("dataset_size", dataset_size, None),
        ):
            if given != usual:
                raise ArgumentError("{} is no setting of a tabular model: leave it out", name)
        return predict_tabular(workload, tabular, device, confidence=confidence, region=region, instance=instance)
    chosen = load_predictor(predictor)
    assumed = assume(host, device, honoured="host" in chosen.supports)
    chosen = chosen.with_settings(
        confidence=confidence, host_slowness=assumed.slowness, host_deviation=assumed.deviation
    )
    # A measured row answers for the machine that measured it, and for no other predictor.
    from_store = measured and predictor == "default" and host == "default"
    device, said = _of_this_machine(device, chosen) if host == "default" else (device, ())
    out = answer(
        workload, device, chosen, assumed, region=region, instance=instance, measured=from_store, epochs=epochs,
        dataset_size=dataset_size,
    )  # fmt: skip
    return replace(out, notes=(*out.notes, *said)) if said else out


def _of_this_machine(device: Device, predictor: Predictor) -> tuple[Device, tuple[str, ...]]:
    """The device with the corrections of this machine's rows where it is watched, and what is to be said of them."""
    if device.adaptation is not None or "adaptation" not in predictor.supports or not watched.place().exists():
        return device, ()
    return watched.corrected(device, predictor.stamp)


def predict_many(
    workloads: Iterable[Workload | dict[str, Any]],
    devices: Iterable[str | Device | dict[str, Any]],
    *,
    predictor: str | Path | Predictor = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    region: str | None = None,
    instance: str | None = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """Every workload on every device, as one table; a case that cannot run has its reason in column `error`.

    Neither the store nor a probe of this machine's host is used by itself, so that all rows of a table stand on the
    same footing: each equals `predict` with `measured=False` and `host="reference"`. `instance` gives the price of the
    device that it carries; the others have their cheapest one.
    """
    from forerun.api.tables import joined, table

    cases = [w if isinstance(w, Workload) else workload_from(w) for w in several("workloads", workloads)]
    named = (with_threads(load_device(d), threads) for d in several("devices", devices))
    chosen = Devices(dict.fromkeys(named))
    assumed = assume(host)  # the same for every device
    estimator = load_predictor(predictor).with_settings(
        confidence=confidence, host_slowness=assumed.slowness, host_deviation=assumed.deviation
    )
    prices = cost_advice.choose_instances(chosen, instance)
    grids = [carbon_advice.choose_grid(region, p if instance and p and p.id == instance else None) for p in prices]
    return joined([table(w, chosen, prices, grids, estimator) for w in cases])


def explain(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    predictor: str | Path | Predictor = "default",
    host: str | float = "default",
    **settings: Any,
) -> Explanation:
    """Where the time goes, op by op; `settings` are those of a workload (batch, dtype, mode ...)."""
    from forerun.api.explanation import explain_ops

    workload, device = _on_one_device(given_model(model, settings)), load_device(device)
    estimator = load_predictor(predictor)
    assumed = assume(host, device, honoured="host" in estimator.supports)
    estimator = estimator.with_settings(host_slowness=assumed.slowness)
    if "device_ms" not in estimator.targets:
        raise ForerunError(f"the predictor {estimator.name} does not predict device time, which is what is explained")
    device, _ = _of_this_machine(device, estimator) if host == "default" else (device, ())
    check(workload, device, estimator)
    question = profiled(workload)
    explanation = explain_ops(question.graph, question.columns, device, estimator, workload)
    return replace(explanation, host=assumed.name) if has_host(device, estimator) else explanation


def attribute(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    predictor: str | Path | Predictor,
    **settings: Any,
) -> Attribution:
    """What each number that a predictor sees contributes to its latency; `settings` are those of a workload."""
    workload, device = _on_one_device(given_model(model, settings)), load_device(device)
    estimator = load_predictor(predictor)
    check(workload, device, estimator)
    attribution = estimator.contributions(profiled(workload).columns, device, workload)
    if attribution is None:
        raise ForerunError(
            f"the predictor {estimator.name} predicts no device time and cannot say what its numbers contribute: "
            "there is nothing to explain"
        )
    return attribution


def _on_one_device(workload: Workload) -> Workload:
    """Refuses what is run by several devices together."""
    if workload.devices > 1:
        raise ForerunError("where the time goes is explained for one device: leave out tp and pp")
    return workload


def verification(
    workload: Workload, device: Device, row: dict[str, Any], *, predictor: str | Path | Predictor = "default"
) -> Verification:
    """The prediction of a case, never from the store, beside the row that measured it."""
    from forerun.api.verification import verify

    return verify(predict_workload(workload, device, predictor=predictor, measured=False), row)
