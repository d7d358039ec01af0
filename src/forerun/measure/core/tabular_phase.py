"""Phase `tabular`: time, memory and energy of fitting tabular models and of predicting with them, on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Any

from forerun.frontends.tabular import kinds

from . import models, plan, tabular_cases, tabular_models
from .protocol import Call, Fit
from .timing_phase import Timing


class Built(models.Built):
    """A tabular model, without PyTorch. What a fit leaves is kept for the calls that predict."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.tabular = kinds.parse(case["name"])
        self.model: Any = None
        self.input_shape = [self.tabular.settings["columns"]]
        self.facts = {"kernel_ms": None, "kernel_ms_reason": "a CPU launches no kernels"}
        self.fitted_facts: dict[str, Any] | None = None
        self._set_threads(case["threads"])
        small = tabular_models.table(self.tabular, min(self.tabular.settings["rows"], tabular_models.SMALL))
        with contextlib.suppress(ValueError):  # more neighbors than rows: the fit itself will start the threads
            tabular_models.fit(tabular_models.untrained(self.tabular, case["threads"]), *small)

    def prepare(self, case: dict[str, Any]) -> None:
        self._set_threads(case["threads"])
        if case["mode"] == "training":
            self.model = None
        elif self.model is None:
            self._fitted(tabular_models.untrained(self.tabular, case["threads"]), *tabular_models.table(self.tabular))
        if self.model is not None and "n_jobs" in self.model.get_params():
            self.model.set_params(n_jobs=case["threads"])
        gc.collect()
        _give_back_memory()

    def call(self, case: dict[str, Any]) -> Call:
        if case["mode"] == "training":
            x, y = tabular_models.table(self.tabular)
            return Fit(lambda: self._fitted(tabular_models.untrained(self.tabular, case["threads"]), x, y))
        x = tabular_models.questions(self.tabular, case["batch"])
        ask = tabular_models.asked(self.model, self.tabular.kind)
        return Call(lambda: ask(x))

    def _fitted(self, estimator: Any, x: Any, y: Any) -> None:
        self.model = self.fitted_facts = None  # the model before it is not held beside it
        self.model = tabular_models.fit(estimator, x, y)

    def known(self) -> dict[str, Any]:
        """Facts of the fitted model too, which are read outside of what is timed."""
        if self.fitted_facts is None and self.model is not None:
            self.fitted_facts = tabular_models.facts(self.model, self.tabular.kind)
        return {**self.facts, **(self.fitted_facts or {})}

    def _set_threads(self, threads: int) -> None:
        """The threads of OpenMP and BLAS; those of joblib, XGBoost and LightGBM are given to the estimator."""
        tabular_models.library("threadpoolctl").threadpool_limits(threads)


class TabularPhase(Timing):
    """The timing phase for tabular models."""

    phase = "tabular"
    kind = tabular_cases.KIND
    unit_s = 60.0  # what is continued later is fitted again

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.probe = False  # of launching PyTorch's kernels; every row has the quick one
        self.versions = versions()  # imports the libraries before the first case, whose time is limited

    def lane(self, spec: dict[str, Any], share: float, seed: int, done: set[tuple[str, int]]) -> plan.Lane:
        return tabular_cases.lane(spec, share, seed, done)

    def software(self) -> dict[str, Any]:
        return {**super().software(), **self.versions}

    def build(self, case: dict[str, Any]) -> Built:
        return Built(case)


def versions() -> dict[str, str]:
    """The versions of the libraries of tabular models that are here."""
    found = {}
    for module in sorted({kind.library for kind in kinds.KINDS.values()}):
        with contextlib.suppress(Exception):
            found[module] = str(tabular_models.library(module).__version__)
    return found


def _give_back_memory() -> None:
    """Returns freed memory to the system, so that what a call takes is seen."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
