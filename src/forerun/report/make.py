"""`make_report`: builds the levels, summarises them in words, and writes the page."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.api.arguments import number, several, whole_number
from forerun.api.questions import given_model
from forerun.device import Device, load_device
from forerun.device.threads import with_threads
from forerun.errors import ForerunError
from forerun.prediction import Prediction
from forerun.report import charts
from forerun.report.cloud import cloud
from forerun.report.distributed import distributed
from forerun.report.inference import inference
from forerun.report.measured_here import device_here, measured_here, with_ceilings
from forerun.report.operators import operators
from forerun.report.page import page
from forerun.report.parts import Level
from forerun.report.serving import serving
from forerun.report.study import Job, Precision, Study
from forerun.report.summary import Summary, summary
from forerun.report.training import training
from forerun.report.written import checked, write

#: The default job: ImageNet-1k, and the epochs of its usual recipes.
DATASET_SIZE, EPOCHS = 1_281_167, 90
MOST_DEVICES = 6
LEVELS: tuple[Callable[[Study], Level | None], ...] = (
    operators, training, measured_here, distributed, inference, serving, cloud,
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A finished report: the page, the same numbers as plain data, and the words of its first screen."""

    html: str
    data: dict[str, Any]
    summary: tuple[str, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self.data, "path": None if self.path is None else str(self.path)}

    def _repr_html_(self) -> str:
        from html import escape

        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:720px;border:0"></iframe>'


def make_report(
    model: Any,
    devices: str | Path | Device | dict[str, Any] | Iterable[str | Path | Device | dict[str, Any]],
    output: str | Path | None = None,
    *,
    batch: int = 32,
    dtype: str | None = None,
    amp: str | None = None,
    mode: str = "inference",
    optimizer: str | None = None,
    dataset_size: int = DATASET_SIZE,
    epochs: int = EPOCHS,
    predictor: Any = "default",
    confidence: float = 0.9,
    host: str | float = "default",
    region: str | None = None,
    threads: int | None = None,
    loading_samples_per_s: float | None = None,
    measured: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Report:
    """A page on how `model` runs on each of `devices`: operators, training, distributed, inference, cloud, and the
    serving of a language model.

    Written to `output` where one is given, in place of a file that is there. `batch`, `dtype` and `amp` are those of
    the case of the operators and the summary; `mode` is inference, prefill or decode. `dataset_size` and
    `epochs` are the training job whose time and price are shown; `loading_samples_per_s` caps its pace. With
    `measured`, ceilings and a short training run are measured too, of the one of `devices` that this machine has.
    `progress` is called with (done, total). The other settings are those of a workload. Like `predict_many`, it takes
    the reference host for every device and shows the store's measurements beside predictions, never in their place.
    """
    place = None if output is None else checked(output)
    charts.objects()  # a missing plotly is an error before anything is computed
    study = _study(
        model, devices, batch=batch, precision=(dtype, amp), mode=mode, optimizer=optimizer,
        job=_job(dataset_size, epochs), predictor=predictor, confidence=confidence, host=host, region=region,
        settings=settings, threads=threads, loading_samples_per_s=loading_samples_per_s,
    )  # fmt: skip
    if measured:
        place_of = study.devices.index(device_here(study.devices))
        here = with_ceilings(study.devices[place_of])
        study.devices = [here if at == place_of else d for at, d in enumerate(study.devices)]
        study.here = here
    answers = [study.predict(device) for device in study.devices]
    if all(isinstance(a, str) for a in answers):
        raise ForerunError(str(answers[0]))
    levels: list[Level] = []
    for done, make in enumerate(LEVELS):
        level = make(study)
        levels += [] if level is None else [level]
        if progress:
            progress(done + 1, len(LEVELS) + 1)
    words = summary(study, levels)
    known = next(a for a in answers if isinstance(a, Prediction))
    data = _data(study, known, levels, words)
    html = page(_title(study, known), _about(study, known), _boxes(words), levels, _notes(answers), data)
    if progress:
        progress(len(LEVELS) + 1, len(LEVELS) + 1)
    if place is not None:
        write(place, html)
    return Report(html, data, (*words.bounds, *words.changes, *words.outlook), place)


def _study(
    model: Any, devices: Any, *, precision: tuple[str | None, str | None], optimizer: str | None, mode: str,
    settings: dict[str, Any], host: str | float, threads: int | None, **rest: Any,
) -> Study:  # fmt: skip
    single = isinstance(devices, (str, Path, Device, dict))
    chosen: Sequence[Device] = list(
        dict.fromkeys(
            with_threads(load_device(d), threads) for d in ([devices] if single else several("devices", devices))
        )
    )
    if not 1 <= len(chosen) <= MOST_DEVICES:
        raise ForerunError(f"a report is about 1 to {MOST_DEVICES} devices, got {len(chosen)}")
    if rest["loading_samples_per_s"] is not None:
        number("loading_samples_per_s", rest["loading_samples_per_s"], zero=False)
    if mode == "training":
        raise ForerunError("a report always has training: mode is the other call, inference, prefill or decode")
    dtype, amp = precision
    workload = given_model(model, {**settings, "dtype": dtype, "amp": amp, "mode": mode, "batch": rest["batch"]})
    checked = (
        given_model(model, {**settings, "mode": "training", "optimizer": optimizer}).optimizer if optimizer else "adamw"
    )
    return Study(
        model, chosen, precision=Precision(workload.shown_dtype, workload.amp), mode=workload.mode,
        optimizer=str(checked), settings=settings, host="reference" if host == "default" else host, **rest,
    )  # fmt: skip


def _job(dataset_size: Any, epochs: Any) -> Job:
    for name, value in (("dataset_size", dataset_size), ("epochs", epochs)):
        whole_number(name, value, most=10**12)
    return Job(dataset_size, epochs)


def _title(study: Study, known: Prediction) -> str:
    return f"{known.model} on {', '.join(d.id for d in study.devices)}"


def _about(study: Study, known: Prediction) -> list[str]:
    shape = known.workload.get("input_shape")
    size = f", input {' x '.join(map(str, shape))}" if isinstance(shape, list) else ""
    length = f", {study.settings['seq_len']:,} tokens" if study.settings.get("seq_len") else ""
    work = f"{known.macs / study.batch / 1e9:.3g} G MACs per sample"
    today = datetime.datetime.now(datetime.UTC).date()
    return [
        f"{_millions(known.parameters)} parameters{size}{length}; {work}. Predicted before anything ran, by forerun on "
        f"{today}; intervals have {100 * study.confidence:.0f} % confidence."
    ]


def _millions(count: int) -> str:
    return f"{count / 1e9:.3g} G" if count >= 1e9 else f"{count / 1e6:.3g} M" if count >= 1e5 else f"{count:,}"


def _boxes(words: Summary) -> list[tuple[str, Sequence[str]]]:
    return [
        ("What bounds this model", words.bounds), ("What to change", words.changes), ("What it takes", words.outlook)
    ]  # fmt: skip


def _notes(answers: Sequence[Prediction | str]) -> list[str]:
    lines = [f"{a.device}: {note}" for a in answers if isinstance(a, Prediction) for note in a.notes]
    shared = [note.partition(": ")[2] for note in lines]
    return list(
        dict.fromkeys(n if shared.count(n) == len(answers) > 1 else line for line, n in zip(lines, shared, strict=True))
    )


def _data(study: Study, known: Prediction, levels: Sequence[Level], words: Summary) -> dict[str, Any]:
    from forerun._util.version import __version__

    return {
        "forerun": __version__, "model": known.model, "parameters": known.parameters, "macs": known.macs,
        "devices": [d.id for d in study.devices],
        "case": {"batch": study.batch, "dtype": study.precision.dtype, "amp": study.precision.amp, "mode": study.mode,
                 "optimizer": study.optimizer},
        "job": {"dataset_size": study.job.dataset_size, "epochs": study.job.epochs,
                "loading_samples_per_s": study.loading_samples_per_s}, "confidence": study.confidence,
        "summary": words.data, "levels": {level.id: level.data for level in levels},
    }  # fmt: skip
