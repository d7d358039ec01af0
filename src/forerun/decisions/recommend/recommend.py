"""forerun.recommend: which device, instance, batch and dtype for a model, within limits, for a goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.advice.limits import GOALS, MEASURES, Limit
from forerun.api.arguments import several
from forerun.api.questions import given_model, items_per_call, workload_from
from forerun.decisions.plans.serving_answer import ServingPlan
from forerun.decisions.recommend.asking import BATCHES, DTYPES, WITHOUT_HOST, ask
from forerun.decisions.recommend.candidates import candidates, kept_by_the_host
from forerun.decisions.recommend.infeasible import nothing_is_offered, nothing_keeps
from forerun.decisions.recommend.offers import OTHERS_USED, Offer, find_offers, wanted
from forerun.decisions.recommend.ranking import ranked
from forerun.decisions.recommend.recommendation import Recommendation
from forerun.decisions.recommend.served import plan, serves
from forerun.device import Device, load_device
from forerun.device.threads import with_threads
from forerun.errors import ForerunError, did_you_mean
from forerun.graph.ir import Graph
from forerun.predictors.base import Predictor
from forerun.predictors.registry import load_predictor
from forerun.runtimes.registry import runtime
from forerun.workload import PUBLISHED, Workload

if TYPE_CHECKING:
    import pandas as pd

#: Measures that need the price of an instance.
_PRICED = ("usd_per_hour", "usd_per_million")


def recommend(
    model: Any,
    *,
    goal: str = "cost",
    max_latency_ms: float | None = None,
    min_throughput: float | None = None,
    max_memory_mb: float | None = None,
    max_usd_per_hour: float | None = None,
    max_usd_per_million: float | None = None,
    max_energy_j: float | None = None,
    max_carbon_g: float | None = None,
    clouds: Sequence[str] | None = None,
    regions: Sequence[str] | None = None,
    vendors: Sequence[str] | None = None,
    devices: Sequence[str | Device] | None = None,
    dtypes: Sequence[str] | None = None,
    batches: Sequence[int] | None = None,
    gpus: Sequence[int] | None = None,
    threads: int | None = None,
    mig: bool = True,
    confidence: float = 0.9,
    predictor: str | Path | Predictor = "default",
    host: str | float = "default",
    **settings: Any,
) -> Recommendation | ServingPlan:
    """The best device, instance, batch and dtype for a model, and all others in order.

    For a language model of the catalogue without any setting or limit of a call, a plan of a serving engine instead
    (`forerun.plan_serving`), which says so.

    `goal` is cost (per million samples or tokens), latency, throughput, energy, carbon or price (per hour). Energy is
    counted per sample or token, carbon per million of them. `regions` are groups such as eu, countries or cloud
    regions; `gpus` are numbers of devices (by default, as many as an instance has), `threads` those of the CPUs among
    `devices`. `settings` are those of a workload; without a runtime, CUDA graphs are tried too where every measured
    device misses the latency limit because it is host-bound. No number is from the store. Where no candidate is within
    the limits, a ForerunError names the limiting constraint and the nearest feasible value.
    """
    if not isinstance(goal, str) or goal not in GOALS:
        raise ForerunError(f"goal {goal!r} is not known.{did_you_mean(str(goal), GOALS) or _choose(GOALS)}")
    devices = _on_threads(devices, threads)
    within = {
        "latency_ms": max_latency_ms, "throughput": min_throughput, "memory_mb": max_memory_mb,
        "usd_per_hour": max_usd_per_hour, "usd_per_million": max_usd_per_million, "energy_j": max_energy_j,
        "carbon_g": max_carbon_g,
    }  # fmt: skip
    filters = {"vendors": vendors, "clouds": clouds, "regions": regions, "gpus": gpus, "batches": batches}
    of_calls = {**within, **filters, "throughput": None}  # a service has a throughput, too
    if serves(model, goal, settings, of_calls) and predictor == "default" and host == "default":
        return plan(model, goal, devices, dtypes, min_throughput, confidence)
    limits = _limits(within)
    for name, given in {"devices": devices, **filters, "dtypes": dtypes}.items():
        if given is not None:  # None is no filter; an empty list would leave no candidates
            several(name, given)
    settings = {name: value for name, value in settings.items() if (name, value) != ("runtime", None)}
    base = given_model(model, settings)
    tried_dtypes, tried_batches = _dtypes(base, dtypes, settings), _batches(batches, settings)
    priced = bool({*(limit.measure.column for limit in limits), GOALS[goal]} & set(_PRICED))
    want = wanted(devices, vendors, clouds, regions, gpus, mig=mig, training=base.mode == "training", priced=priced)
    offers, excluded = find_offers(want)
    if not offers:
        raise nothing_is_offered(want, excluded)
    fixed = {k: v for k, v in settings.items() if k not in ("batch", "dtype")} | {"model": model}
    how: dict[str, Any] = {
        "dtypes": tried_dtypes, "batches": tried_batches, "max_latency_ms": max_latency_ms,
        "predictor": load_predictor(predictor), "confidence": confidence, "host": host,
    }  # fmt: skip
    table, graph, bound = _tried(fixed, offers, base, limits, how)
    items = items_per_call(graph, base)[1]
    best = ranked(table, offers, limits, MEASURES[GOALS[goal]], items, confidence)
    if not best.rows:
        raise nothing_keeps(table, offers, limits, items)
    return Recommendation(
        model=graph.name, goal=goal, items=items, confidence=confidence,
        workload={k: v for k, v in base.to_dict().items() if k not in ("batch", "dtype")},
        limits={limit.measure.column: limit.value for limit in limits}, rows=best.rows,
        latency_cost_front=best.latency_cost_front, energy_throughput_front=best.energy_throughput_front,
        notes=(*best.notes, *_published_note(base, tried_dtypes),
               *_notes(want, best.rows, tried_batches, batches, bool(bound))),
        excluded=(*best.excluded, *excluded), offers=len(offers), considered=len(table), candidates=best.candidates,
    )  # fmt: skip


def _on_threads(devices: Sequence[str | Device] | None, threads: int | None) -> Sequence[str | Device] | None:
    if threads is None:
        return devices
    if devices is None:
        raise ForerunError("threads are those of CPUs that are named: give devices, too")
    return [with_threads(load_device(d), threads) for d in several("devices", devices)]


def _tried(
    fixed: dict[str, Any], offers: Sequence[Offer], base: Workload, limits: Sequence[Limit], how: dict[str, Any]
) -> tuple[pd.DataFrame, Graph, list[Device]]:
    """Every candidate with its predictions, the graph, and the devices that the host alone keeps from a limit: where no
    runtime is given, they are tried with CUDA graphs too."""
    import pandas as pd

    predictions, question = ask(fixed, list(dict.fromkeys(offer.device for offer in offers)), **how)
    table = candidates(predictions, offers, question.graph, base, how["predictor"])
    alone = "runtime" in fixed or base.mode == "generate"  # its loop runs eagerly
    bound = [] if alone else kept_by_the_host(table, offers, limits)
    if bound:
        again, _ = ask(fixed | {"runtime": WITHOUT_HOST}, bound, **how)
        more = candidates(again, offers, question.graph, base, how["predictor"])
        table = pd.concat([table, more], ignore_index=True)
    return table, question.graph, bound


def _limits(given: dict[str, float | None]) -> list[Limit]:
    out = []
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise ForerunError(f"the limit of {MEASURES[name].words} must be a number of zero or more, got {value!r}")
        out.append(Limit(MEASURES[name], float(value)))
    return out


def _dtypes(base: Workload, given: Sequence[str] | None, settings: dict[str, Any]) -> list[str]:
    """The dtypes that are tried: those given, the model's own where it has one, else the published one and those
    without a loss of accuracy."""
    if given and settings.get("dtype"):
        raise ForerunError("give dtype or dtypes, not both")
    if given or settings.get("dtype"):
        return list(dict.fromkeys(_definite(d, base, settings) for d in given or [base.shown_dtype]))
    if base.amp or runtime(base.runtime).runs_files or not isinstance(base.model, str):
        return [base.shown_dtype]
    return list(dict.fromkeys((base.shown_dtype, *DTYPES["training" if base.mode == "training" else "other"])))


def _definite(dtype: str, base: Workload, settings: dict[str, Any]) -> str:
    """A dtype by its own name; the checkpoint's own is called `published` where no other name fits."""
    if str(dtype).lower() == PUBLISHED:
        return base.shown_dtype
    return workload_from({**settings, "model": "", "dtype": dtype}).dtype


def _published_note(base: Workload, tried: Sequence[str]) -> tuple[str, ...]:
    if PUBLISHED not in tried:
        return ()
    return (f"dtype {PUBLISHED}: {base.dtype} with linear weights in {base.weight_format}, as the checkpoint has them",)


def _batches(given: Sequence[int] | None, settings: dict[str, Any]) -> list[int]:
    if given and "batch" in settings:
        raise ForerunError("give batch or batches, not both")
    chosen = given or ([settings["batch"]] if "batch" in settings else BATCHES)
    return sorted({workload_from({"model": "", "batch": b}).batch for b in chosen})


def _choose(names: Any) -> str:
    return f" Choose from {', '.join(names)}."


def _notes(
    want: Any, rows: Any, tried: Sequence[int], given: Sequence[int] | None, without_host: bool
) -> tuple[str, ...]:  # fmt: skip
    """The assumptions of the numbers."""
    notes = []
    if without_host:
        notes.append(
            f"in eager mode every measured device is host-bound and misses the latency limit, so CUDA graphs were "
            f"tried too: rows that say {WITHOUT_HOST} need --runtime {WITHOUT_HOST}"
        )
    instances = {row.cloud: row.price_region for row in rows if row.instance}
    if want.regions is not None:
        priced = ", ".join(f"{cloud} {region}" for cloud, region in sorted(instances.items()))
        notes.append(
            f"prices are of {priced}: what an instance costs in {', '.join(want.region_words)}, and whether it is "
            f"offered there, is not in the catalogue; carbon is that of the cleanest region allowed"
        )
    if any(row.share < 1 for row in rows):
        notes.append(
            "a single MIG slice is rented with its whole instance, which is its price; its cost, energy and carbon are "
            f"its share of them, {OTHERS_USED}"
        )
    if given is None and len(tried) > 1 and rows[0].batch == tried[-1]:
        notes.append(f"batch {tried[-1]:,} is the largest that was tried: larger ones (--batch) may be better")
    return tuple(notes)
