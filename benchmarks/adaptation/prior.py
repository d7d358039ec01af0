"""Fits the spread between known devices: src/forerun/predictors/laws/adaptation.yaml.

    python benchmarks/adaptation/prior.py COLLECTED [--write]

For each kind of device, the standard deviations that make the measured times of its devices most likely (type II
maximum likelihood, each device linear around its own corrections). Devices that ADAPT.md judges are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).parent))
from collect import device, saved, specs

from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import Calls, Prior
from forerun.training.adapting.fitting import PRIORS, rounding_of

ROWS = 24  # of each device
#: Left out: ROCm does not support the chip, and half of its rows are ten times slower than the others say.
ODD = ("amd-radeon-rx-5700",)
START = {"common": 0.3, "resource": 0.4, "group": 0.25, "own": 0.25, "host": 0.3, "host_own": 0.15, "host_half": 0.2,
         "model": 0.12, "alike": 0.5, "noise": 0.035}  # fmt: skip
#: Steps of the search, each a fit of every device.
SEARCH = 250
LEAST, MOST = 0.02, 1.5


def surprise(prior: Prior, tables: list[tuple[Calls, np.ndarray, np.ndarray]]) -> float:
    """The negative logarithm of the likelihood of all devices' rows, each with a noise of its own."""
    return sum(law.surprise(law.fit_noise(*one[:2], prior, one[2])) for one in tables)


def fitted(tables: list[tuple[Calls, np.ndarray, np.ndarray]]) -> dict[str, float]:
    names = list(START)

    def prior_of(logs: np.ndarray) -> Prior:
        return Prior.of(dict(zip(names, np.clip(np.exp(logs), LEAST, MOST), strict=True)))

    def loss(logs: np.ndarray) -> float:  # a weak pull to the start: what no device shows stays there
        start = np.log(list(START.values()))
        return surprise(prior_of(logs), tables) + 0.5 * float(((logs - start) ** 2).sum())

    best = minimize(loss, np.log(list(START.values())), method="Nelder-Mead", options={"maxfev": SEARCH, "xatol": 0.02})
    return {name: round(float(value), 3) for name, value in vars(prior_of(best.x)).items()}


def main(folder: Path, write: bool) -> None:
    held_out = {name for name, fields in specs().items() if fields.get("held_out")}
    tables: dict[str, list[tuple[Calls, np.ndarray, np.ndarray]]] = {"gpu": [], "cpu": []}
    used: dict[str, list[str]] = {"gpu": [], "cpu": []}
    for name, (rows, calls) in saved(folder).items():
        device_id = name.rpartition(".")[0]
        if device_id in (*held_out, *ODD) or len(rows) < 20:
            continue
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:ROWS])
        measured = rows["measured"].to_numpy(dtype=float)
        part = device(device_id).traits.part
        tables[part].append((calls.take(chosen), measured[chosen], rounding_of(measured)[chosen]))
        used[part].append(name)
    # Assumed: kinds of network differ from each other as held-out kinds do on an H200, by about a tenth.
    networks = {**START, "common": 0.1, "resource": 0.1, "group": 0.15, "own": 0.1, "host": 0.15, "host_own": 0.1,
                "host_half": 0.1, "alike": 0.5, "noise": 0.05}  # fmt: skip
    found = {part: fitted(each) for part, each in tables.items() if each}
    made = {"priors": {**found, "networks": networks}, "fitted_to": used}
    text = (
        "# Standard deviations between devices, in logarithms: what forerun adapt expects before it sees a row.\n"
        "# Fitted by benchmarks/adaptation/prior.py to published rows of the devices below (cells: NAS-Bench-201, of\n"
        "# help_nas_latency; zoo: torchvision models, of pytorch_gpu_benchmark). Judged devices are not among them.\n"
        + yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=116)
    )
    print(text)
    if write:
        PRIORS.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--write" in sys.argv)
