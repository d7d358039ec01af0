"""Names that are listed or suggested are names that are answered."""

from __future__ import annotations

import re

import pytest

import forerun
from forerun.errors import ForerunError
from forerun.frontends import find_frontend
from forerun.frontends.known_models import known_models
from forerun.networks import FILES
from forerun.networks import names as family_names


def suggestions(error: ForerunError) -> list[str]:
    found = re.search(r"Did you mean (.*)\?", str(error))
    return found[1].split(", ") if found else []


@pytest.mark.parametrize(
    "typed", ["unett", "diffusion_unett", "resnet5o", "bert-base-uncasde", "recurent", "Llama-3.1-8b-"]
)
def test_what_is_suggested_is_taken(typed: str) -> None:
    asked = []
    for ask in (known_models, lambda name: forerun.predict(name, "l4")):
        with pytest.raises(ForerunError) as error:
            ask(typed)
        asked += suggestions(error.value)
    assert asked, typed
    for name in asked:
        find_frontend(name)
        if name.endswith(":"):
            assert name in family_names()


def test_families_are_suggested_as_they_are_asked_for() -> None:
    assert {name.rstrip(":") for name in family_names()} <= set(FILES) and len(family_names()) >= 30
    for name in ("unet:", "recurrent:", "resnet18", "bert-base-uncased"):
        assert forerun.predict(name, "l4").latency_ms.value > 0
    with pytest.raises(ForerunError, match="Did you mean unet:"):
        forerun.predict("unet", "l4")
