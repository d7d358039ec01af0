"""Names of countries, organisations and hardware unified, and hardware names as ids of our catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

from forerun.device import aliases, device_ids
from forerun.device.reading import key, read_yaml
from forerun.errors import ForerunError

Section = Literal["countries", "organisations", "hardware", "devices"]
_VENDORS = ("nvidia-", "google-", "amd-", "huawei-", "intel-", "amazon-", "aws-")


def country(name: str) -> str:
    """The short English name of a country."""
    return _section("countries").get(key(name), name.strip())


def organisation(name: str) -> str:
    """One name for an organisation: without its abbreviation, laboratories under their company."""
    plain = name.strip()
    known = _section("organisations")
    if known_as := known.get(key(plain)):
        return known_as
    plain = re.sub(r"\s*\([A-Z][A-Za-z0-9.-]{1,9}\)$", "", plain)
    return known.get(key(plain), plain)


def hardware(name: str) -> str:
    """The newest name of a piece of hardware in the published table."""
    plain = re.sub(r"\s+", " ", name.strip())
    return _section("hardware").get(key(plain), plain)


@cache
def device_of(name: str) -> str | None:
    """The id of our catalogue for a hardware name of the tables; None where the catalogue has no such device.

    Names match exactly, but for case, spaces, a vendor's name in front, a remark in parentheses and the word GPU.
    """
    listed = _section("devices")
    known = {**{key(device): device for device in device_ids()}, **aliases()}
    for form in _forms(name):
        if device_id := listed.get(form) or known.get(form):
            return device_id
    return None


def _forms(name: str) -> Iterable[str]:
    """A hardware name as written, then with less and less around it."""
    joined = re.sub(r"(\d)\s+(GB|G)\b", r"\1\2", name.strip(), flags=re.IGNORECASE)
    for text in dict.fromkeys((joined, re.sub(r"\s*\([^)]*\)", "", joined))):
        full = re.sub(r"-gpus?$", "", key(text))
        yield full
        for vendor in _VENDORS:
            yield full.removeprefix(vendor) if full.startswith(vendor) else f"{vendor}{full}"


@cache
def _section(section: Section) -> dict[str, str]:
    """Every name of a section of names.yaml in the form names are compared in, and the name it maps to."""
    names: dict[str, str] = {}
    for chosen, others in read_yaml(Path(__file__).with_name("names.yaml"))[section].items():
        for name in dict.fromkeys(map(key, (chosen, *others))):
            if name in names:
                raise ForerunError(f"names.yaml: {name} names both {names[name]} and {chosen}")
            names[name] = str(chosen)
    return names
