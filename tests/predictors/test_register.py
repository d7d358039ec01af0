"""forerun.register: what a notebook adds to its process, what is found of it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from entry_points import installed

import forerun
from forerun.data.importers import IMPORTERS, Importer, Loaded, importer
from forerun.device import all_devices, loading
from forerun.errors import ForerunError
from forerun.frontends import find_frontend
from forerun.frontends.base import Frontend
from forerun.frontends.registry import FRONTENDS
from forerun.measure.core.meters import METERS, Meter, meter_for
from forerun.predictors.base import Predictor
from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.registry import PREDICTORS, load_predictor, predictor_class, predictors
from forerun.runtimes import registry as runtimes
from forerun.runtimes.eager import Eager

MODEL = "cnn:depth=2,filters=4,classes=10"
CHIP = {"id": "acme-x1", "name": "Acme X1", "kind": "gpu", "memory_gb": 24, "bandwidth_gbs": 600, "fp32_tflops": 20}


class Sure(RooflinePredictor):
    """The roofline, by another name."""

    name = "sure"

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor


class AcmeFrontend(Frontend):
    takes = "an Acme file"
    suffixes = (".acme",)

    def matches(self, model: Any) -> bool:
        return self.claims(model)

    def load(self, model: Any, workload: Any) -> Any:
        raise ForerunError("an Acme file is empty")


class AcmeImporter(Importer):
    name, about, licence = "acme_times", "nothing", "CC0-1.0"
    source, commit = "https://example.org/acme", "0123abc"

    def load(self, folder: Path) -> Loaded:
        return Loaded({})


class AcmeMeter(Meter):
    kind = "acme"

    @classmethod
    def available(cls) -> bool:
        return True


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for registry in (PREDICTORS, FRONTENDS, IMPORTERS, METERS):
        registry.reset()
    loading._registered.clear()


def test_a_class_of_a_predictor_answers_by_its_name() -> None:
    assert forerun.register(Sure) is Sure  # so that it decorates a class
    found, usual = (forerun.predict(MODEL, "t4", predictor=name) for name in ("sure", "roofline"))
    assert found.latency_ms == usual.latency_ms
    assert predictor_class("sure") is Sure and "sure" in predictors()


def test_an_object_of_a_predictor_is_the_one_that_answers() -> None:
    mine = Sure(factor=3.0)
    forerun.register(mine, name="thrice")
    assert load_predictor("thrice") is mine and predictor_class("thrice") is Sure


def test_registering_a_name_again_replaces_what_the_notebook_had() -> None:
    for kind in (Sure, type("Sure", (Sure,), {})):
        forerun.register(kind)
        assert type(load_predictor("sure")) is kind


def test_a_frontend_is_asked_about_its_files_under_the_name_of_its_class() -> None:
    forerun.register(AcmeFrontend)
    assert find_frontend("net.acme")[0] == "AcmeFrontend"
    with pytest.raises(ForerunError, match="an Acme file is empty"):
        forerun.predict("net.acme", "t4")


def test_an_importer_and_a_meter_are_found_by_their_own_names() -> None:
    forerun.register(AcmeImporter())
    forerun.register(AcmeMeter)
    assert isinstance(importer("acme_times"), AcmeImporter)
    assert isinstance(meter_for("acme"), AcmeMeter)


def test_a_device_is_one_of_the_catalogue() -> None:
    chip = forerun.load_device(CHIP)
    forerun.register(chip)
    assert forerun.load_device("ACME_X1") is chip is forerun.load_device("Acme X1")
    assert chip in all_devices()
    assert forerun.predict(MODEL, "acme-x1").device == "acme-x1"


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (42, None, "a predictor, a frontend, an importer, a meter, a runtime (a class or an object) or a Device"),
        (Predictor, None, "register takes a predictor"),  # the contract itself is none
        (Sure, "default", "a predictor called default is installed"),
        (AcmeFrontend, "onnx", "a frontend called onnx is installed"),
        (AcmeFrontend, " ", "a frontend needs a name"),
        (CHIP | {"id": "h200"}, None, "h200 is a name of h200 in the catalogue"),
        (CHIP, "other", "a device is found by its id, which is acme-x1"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_refused_in_one_sentence(thing: Any, name: str | None, message: str) -> None:
    given = forerun.load_device(thing) if isinstance(thing, dict) else thing
    with pytest.raises(ForerunError) as caught:
        forerun.register(given, name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_package_that_brings_the_name_later_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    twice = [EntryPoint("acme", f"{place}:Acme", "forerun.predictors") for place in ("one", "two")]
    with (
        installed(PREDICTORS, *twice),
        pytest.raises(ForerunError, match="two predictors are called acme: one:Acme and"),
    ):
        forerun.register(Sure)


class Patient(Eager):
    """Eager PyTorch, by another name."""

    name = "patient"


def test_a_runtime_is_asked_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "_registered", {})
    with pytest.raises(ForerunError, match="runtime 'patient' is not known"):
        forerun.predict(MODEL, "h200", runtime="patient")
    assert forerun.register(Patient) is Patient
    eager, patient = (forerun.predict(MODEL, "h200", runtime=name, measured=False) for name in ("eager", "patient"))
    assert patient.workload["runtime"] == "patient" and patient.device_ms.value == eager.device_ms.value
    with pytest.raises(ForerunError, match="found by its own name, which is patient"):
        forerun.register(Patient, "other")
