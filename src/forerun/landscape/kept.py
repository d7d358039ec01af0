"""The imported tables, stored in the store's folder."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from forerun._util.extras import require
from forerun.data.places import default_folder
from forerun.errors import ForerunError
from forerun.landscape.schema import HARDWARE, MODELS, Step, Tables, typed

FORMAT = 1


def folder() -> Path:
    """Where the imported tables are: `landscape` in the store's folder."""
    return default_folder() / "landscape"


def _can_read() -> None:
    """pandas reads and writes the tables with pyarrow."""
    require("the landscape of published models", "pyarrow", extra="landscape")


def keep_tables(tables: Tables) -> Path:
    """Keeps the tables in place of those imported before; all of them or nothing. Returns their folder."""
    _can_read()
    place = folder()
    part = place.with_name(f".{place.name}-{uuid.uuid4().hex}.part")
    old = part.with_suffix(".old")
    about = {
        "format": FORMAT, "steps": [asdict(step) for step in tables.steps], "copies": list(tables.copies),
        "hardware_resolved": tables.hardware_resolved,
    }  # fmt: skip
    try:
        part.mkdir(parents=True)
        tables.models.to_parquet(part / "models.parquet")
        tables.hardware.to_parquet(part / "hardware.parquet")
        (part / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        if place.exists():
            place.rename(old)
        part.rename(place)
    except OSError as error:
        if old.exists() and not place.exists():
            old.rename(place)
        raise ForerunError(f"the store cannot be written: {error.strerror or error} ({place})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return place


def load_tables() -> Tables:
    """The tables as they were imported."""
    place = folder()
    if not place.is_dir():
        raise ForerunError("no tables were imported yet; import Epoch AI's with: forerun landscape import FOLDER")
    _can_read()
    try:
        about = json.loads((place / "about.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ForerunError(
                "the tables were imported by another version; import them again: forerun landscape import"
            )
        models = typed(pd.read_parquet(place / "models.parquet"), MODELS)
        hardware = typed(pd.read_parquet(place / "hardware.parquet"), HARDWARE)
        steps = [Step(**step) for step in about["steps"]]
        return Tables(models, hardware, steps, about["hardware_resolved"], tuple(about["copies"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ForerunError(
            f"the imported tables in {place} cannot be read; import them again: forerun landscape import"
        ) from error
