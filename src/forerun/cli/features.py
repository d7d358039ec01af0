"""`forerun explain` for whole-network predictors: the contribution of each feature."""

from __future__ import annotations

import json
from pathlib import Path

from forerun.cli.terminal import show, waiting
from forerun.cli.workload_options import WorkloadSettings
from forerun.errors import ForerunError


def explain_features(
    model: str, device: str, predictor: str, host: str, settings: WorkloadSettings, *, top: int, figure: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Prints the contributions, and draws them if a file is given."""
    from forerun.api.predict import attribute
    from forerun.views.attribution import attribution_view

    if host != "default":
        raise ForerunError(f"the predictor {predictor} knows nothing of hosts: leave --host out")
    with waiting(f"reading {model}", quiet=as_json):
        attribution = attribute(model, device, predictor=predictor, **settings.values)
    if figure is not None:
        from forerun.report import feature_charts

        feature_charts.write(feature_charts.waterfall(attribution, top), figure)
    if as_json:
        print(json.dumps(attribution.to_dict(), indent=2))
        return
    show(*attribution_view(attribution, top=top))
    if figure is not None:
        print(f"written to {figure}")
