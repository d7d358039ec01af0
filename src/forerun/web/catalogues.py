"""What the server can list: devices, models, and the scoreboard."""

from __future__ import annotations

import json
from typing import Any


def devices(name: str | None = None) -> Any:
    """`forerun devices --json`."""
    from forerun.device import all_devices, load_device
    from forerun.web.models import device_of

    return [d.to_dict() for d in all_devices()] if name is None else load_device(device_of(name)).to_dict()


def models(name: str | None = None) -> Any:
    """`forerun models --json`."""
    from forerun.frontends.known_models import known_models, one_model

    return (name and one_model(name)) or known_models(name)


def scoreboard() -> dict[str, Any]:
    """Errors, coverage and widths on held-out families: what `forerun evaluate` prints for the shipped predictors."""
    from forerun.evaluate import full
    from forerun.evaluate.stored import stored_predictions
    from forerun.predictors.saved import SHIPPED

    frames = {"default": stored_predictions(SHIPPED / "default")}
    lines = full.summary(full.study_board(frames, "family"))
    exam = full.summary(full.board_of_test_set(frames))
    return {"left_out_families": records(lines), "exam": records(exam)}


def records(frame: Any) -> list[dict[str, Any]]:
    """A table as plain data, one dict per row."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return rows
