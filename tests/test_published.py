"""Published times of whole models: which rows are taken, what they stand for, and GPUs that were left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forerun.data.importers import Importer, importers, load
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.evaluate import devices, neusight, parts
from forerun.evaluate.devices import model_lines, models_left_out, models_predicted
from forerun.graph.ir import Graph
from forerun.graph.sources import load_graph
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.conformal import calibrate
from forerun.predictors.default import DefaultPredictor, fit_host
from forerun.predictors.default.fit import device_bound, domain, group_names
from forerun.predictors.default.weights import Weights
from forerun.predictors.energy import FACTORS
from forerun.predictors.features import OpTable
from forerun.predictors.host import COUNTED, HostCosts
from forerun.training.cases import operator_cases
from forerun.training.published import has_any, other_families, published_cases, published_rows
from forerun.workload import Workload


def timm(model: str, device: str, ms: float, **more: Any) -> dict[str, Any]:
    row = {"dataset": "timm", "source": "timm", "model": model, "family": "resnet", "device": device,
           "mode": "inference", "dtype": "fp32", "amp": "fp16", "runtime": "eager", "batch": 256,
           "input_shape": "[3,224,224]", "devices": 1, "latency_ms": ms,
           "software": '{"torch":"2.4.0"}', "protocol": "timm", "status": "ok"}  # fmt: skip
    return row | more


def vision(device: str, ms: float, **more: Any) -> dict[str, Any]:
    row = {"dataset": "pytorch_gpu_benchmark", "source": "torchvision", "model": "torchvision/resnet18",
           "family": "resnet", "device": device, "mode": "inference", "dtype": "fp32", "amp": None, "runtime": "eager",
           "batch": 12, "input_shape": "[3,224,224]", "devices": 1, "latency_ms": ms, "software": None,
           "protocol": "pytorch_gpu_benchmark", "status": "ok"}  # fmt: skip
    return row | more


OLD = "pytorch_gpu_benchmark/20-iterations"
ROWS = [
    timm("resnet18.a1_in1k", "rtx3090", 40.0),
    timm("resnet18.a1_in1k", "rtx3090", 60.0, software='{"torch":"1.13"}'),
    timm("resnet18.a1_in1k", "rtx3090", 70.0, input_shape="[3,288,288]"),
    timm("resnet18.a1_in1k", "rtx3090", 30.0, protocol="timm/channels_last"),
    timm("resnet18", "rtx4090", 25.0),
    timm("resnet18", "rtx4090", 20.0, runtime="compile"),
    timm("resnet34", "rtx4090", 45.0),  # not on the other card
    vision("titan-rtx", 9.0),
    vision("titan-rtx", 11.0),
    vision("titan-rtx", 8.0, protocol=OLD),
    vision("titan-rtx", 25.0, mode="training"),
    vision("titan-rtx", 90.0, dtype="fp64"),
    vision("titan-rtx", 9.0, devices=2, batch=24),
    vision("a-card-nobody-knows", 9.0),
    vision("a100-sxm4-40gb", 5.0, dtype="fp16"),
    vision("a100-sxm4-40gb", 14.0, mode="training"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(Path(tmp_path_factory.mktemp("published")), shipped=False)
    made.append("models", pd.DataFrame(ROWS))
    return made


@pytest.fixture(scope="module")
def cases(store: Store) -> Cases:
    return published_cases(store)


def test_one_row_a_case_the_newest_and_the_median(store: Store) -> None:
    rows = published_rows(store.read("models"))
    timm = rows[rows["dataset"] == "timm"].set_index(["device", "protocol"])["latency_ms"].to_dict()
    assert timm == {
        ("rtx3090", "timm"): 40.0, ("rtx4090", "timm"): 25.0, ("rtx3090", "timm/channels_last"): 30.0,
    }  # fmt: skip
    vision = rows[rows["dataset"] != "timm"]
    assert sorted(vision["latency_ms"]) == [5.0, 8.0, 10.0, 14.0, 25.0]
    assert set(vision["device"]) == {"titan-rtx", "a100-sxm4-40gb"}
    with pytest.raises(ForerunError, match="no published times"):
        published_rows(store.read("models").iloc[:0])


def test_copied_images_are_part_of_one_way_of_measuring(store: Store) -> None:
    rows = published_rows(store.read("models")).set_index(["protocol", "dtype"])["copy_ms"]
    assert (rows["timm"] == 0).all()
    assert (rows[OLD] == 0).all()
    # 12 images * 3 * 224 * 224 * 4 bytes at 4 GB/s
    assert rows["pytorch_gpu_benchmark", "fp32"].iloc[0] == pytest.approx(12 * 3 * 224 * 224 * 4 / 4e6)


def workload_of(row: dict[str, Any]) -> tuple[Importer, Workload]:
    """The importer of a row, and what the row ran."""
    importer = importers()[row["dataset"]]
    return importer, importer.workload(row)


def test_training_without_an_optimizer_step() -> None:
    importer, timed = workload_of(vision("titan-rtx", 25.0, mode="training"))
    assert {op.phase for op in load_graph(timed).ops} == {"forward", "backward", "optimizer"}
    assert {op.phase for op in importer.graph(timed).ops} == {"forward", "backward"}
    importer, stepped = workload_of(timm("timm/resnet18", "rtx3090", 90.0, mode="training", dtype="fp32", amp="fp16"))
    assert (stepped.optimizer, stepped.amp, stepped.batch) == ("momentum", "fp16", 256)
    assert "optimizer" in {op.phase for op in importer.graph(stepped).ops}


def test_timm_ran_half_precision_over_fp32_weights_and_channels_last_where_it_says_so() -> None:
    _, first = workload_of(timm("timm/resnet18", "rtx3090", 40.0))
    assert (first.dtype, first.amp, first.runtime, first.channels_last) == ("fp32", "fp16", "eager", False)
    row = timm("timm/resnet18", "rtx4090", 20.0, runtime="compile", protocol="timm/channels_last", amp="bf16")
    _, last = workload_of(row)
    assert (last.dtype, last.amp, last.runtime, last.channels_last) == ("fp32", "bf16", "compile", True)
    graph = load_graph(first)
    assert {graph.tensors[i].dtype for op in graph.ops if op.kind == "conv" for i in op.inputs} == {"fp16"}
    assert {graph.tensors[i].dtype for i, t in enumerate(graph.tensors) if is_weight(graph, t.storage)} == {"fp32"}


def is_weight(graph: Graph, storage: int) -> bool:
    return graph.storages[storage].role == "parameter"


def test_timm_rows_are_the_network_that_has_their_parameters(tmp_path: Path) -> None:
    """Tables in their authors' layout: merged branches show in the number of parameters alone."""
    size = {"infer_batch_size": 256, "infer_img_size": 224, "infer_samples_per_sec": 5000.0}
    published = {
        "pt240-cu124-rtx3090": {"repvgg_a0": 9.11, "levit_128s": 7.78, "resnet18": 11.69},  # with branches
        "pt291-cu128-4090": {"repvgg_a0": 8.31, "levit_128s": 7.76, "resnet18": 9.0},  # merged; of another network
    }
    for models in published.values():
        models["repghostnet_050"] = 2.31  # with its branches or merged: the rounded number says nothing
    (tmp_path / "results").mkdir()
    for number, (name, models) in enumerate(published.items()):
        table = [
            size | {"model": model, "param_count": count, "infer_step_time": 50.0 + number}
            for model, count in models.items()
        ]
        path = tmp_path / f"results/benchmark-infer-amp-nchw-{name}.csv"
        pd.DataFrame(table).to_csv(path, index=False)
    made = Store(tmp_path / "store", shipped=False)
    made.replace("timm", load("timm", tmp_path).tables)
    rows = published_rows(made.read("models"))
    found = rows.groupby("device")["model"].agg(sorted).to_dict()
    assert found == {
        "rtx3090": ["timm/levit_128s", "timm/repvgg_a0", "timm/resnet18"],
        "rtx4090": ["timm/levit_128s?reparam=true", "timm/repvgg_a0?reparam=true"],
    }
    assert rows["case_key"].is_unique  # a merged network is another program
    row = next(one for one in rows.to_dict("records") if one["model"] == "timm/repvgg_a0?reparam=true")
    importer, asked = workload_of(row)
    assert importer.graph(asked).parameters == pytest.approx(8.31e6, abs=5e3)


def test_old_software_zeroes_gradients_and_adds_to_them() -> None:
    importer, timed = workload_of(vision("titan-rtx", 25.0, mode="training"))
    now, then = importer.graph(timed, '{"torch":"2.3"}'), importer.graph(timed, '{"torch":"1"}')
    assert [op.name for op in now.ops] == [op.name for op in importer.graph(timed).ops]
    assert then.ops[: len(now.ops)] == now.ops
    more = then.ops[len(now.ops) :]
    assert len(more) == 2 * 62  # every parameter of a ResNet-18
    sizes = {op.name: 0.0 for op in more}
    for op in more:
        sizes[op.name] += np.prod(then.tensors[op.outputs[0]].shape)
    assert sizes == {"aten::zero_": now.parameters, "aten::add_.Tensor": now.parameters}
    importer, inference = workload_of(vision("titan-rtx", 9.0))
    assert importer.graph(inference, '{"torch":"1"}').ops == load_graph(inference).ops
    importer, stepped = workload_of(timm("timm/resnet18", "rtx3090", 90.0, mode="training", dtype="fp32", amp="fp16"))
    old = importer.graph(stepped, '{"torch":"1.12"}')
    assert len(old.ops) == len(load_graph(stepped).ops) + 2 * 62


def test_newer_cards_do_not_change_what_timm_teaches(store: Store) -> None:
    before = published_rows(store.read("models"))
    newer = [timm(model, "rtx5090", 12.0) for model in ("resnet18", "resnet34", "vit_tiny_patch16_224")]
    after = published_rows(pd.concat([store.read("models"), pd.DataFrame(newer)], ignore_index=True))
    assert "rtx5090" not in set(after["device"])
    assert after["case_key"].tolist() == before["case_key"].tolist()


def test_only_sets_that_teach_models_count(store: Store) -> None:
    rows = store.read("models")
    assert has_any(rows)
    assert not has_any(rows.assign(dataset="neusight"))
    assert not has_any(rows.assign(dataset="forerun-h200"))


def test_cases_hold_what_a_fit_needs(cases: Cases) -> None:
    assert len(cases.rows) == 9
    assert (cases.roofline_ms > 0).all()
    assert (cases.rows["roofline_ms"] == cases.roofline_ms).all()
    assert (cases.roofline_ms < cases.rows["latency_ms"]).all()
    fast, slow = (
        HostCosts(np.full(cases.launches.shape[1], us), 0.0, 4.0, compiled_us=(us, us)) for us in (0.01, 1000.0)
    )
    assert len(device_bound(cases, fast).rows) == 9
    assert device_bound(cases, slow).rows.empty
    assert (device_bound(cases, fast).rows["device_ms"] <= cases.rows["latency_ms"]).all()


def test_families_that_are_asked_for_do_not_teach(cases: Cases) -> None:
    asked = pd.DataFrame({"family": ["vit"], "model": ["timm/vit_small_patch16_224?depth=2"]})
    assert len(other_families(cases, asked).rows) == len(cases.rows)
    by_family = pd.DataFrame({"family": ["resnet"], "model": ["wide"]})
    by_name = pd.DataFrame({"family": ["ours"], "model": ["timm/resnet101?layers=[1,1,1,1]"]})
    for one in (by_family, by_name):
        assert other_families(cases, one).rows.empty


QUICK = DefaultPredictor(steps=3, seeds=(0,))
SCORES = calibrate(["latency_ms"] * 50, np.linspace(-0.2, 0.2, 50))
#: What a fit of `DefaultPredictor` was given, in order.
Seen = list[TrainingCases]


def on_our_own(cases: Cases) -> Cases:
    """The same cases as if we had measured them."""
    own = cases.rows.assign(
        device="h200", device_ms=cases.rows["latency_ms"], session="s", extra="{}", measured_at="2026-01-01"
    )
    return replace(cases, rows=own)


class OneMillisecond:
    """A network to which every op takes 1 ms, and the timing of a NeuSight row another 0.5 ms."""

    def seconds(self, ops: OpTable) -> np.ndarray:
        return self.seconds_and_spread(ops)[0]

    def seconds_and_spread(self, ops: OpTable) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(ops.classes), 1e-3), np.zeros(len(ops.classes))

    def floor_us(self, timing_group: np.ndarray) -> np.ndarray:
        return np.where(timing_group == 1, 500.0, 0.0)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Seen]:
    """Notes what fits are given; with `host`, a fit gives OneMillisecond and this host instead of learning anything."""
    monkeypatch.setattr(parts, "side_by_side", map)  # in this process, so that the fits are seen
    monkeypatch.setattr(fit_host, "ROUNDS", 1)
    real = DefaultPredictor.fit

    def spy(host: HostCosts | None = None) -> Seen:
        seen: Seen = []

        def fit(self: DefaultPredictor, cases: TrainingCases) -> DefaultPredictor:
            seen.append(cases)
            if host is None:
                return real(self, cases)
            networks: Any = {"gpu": OneMillisecond()}
            self.weights_ = Weights(
                networks, host, FACTORS, domain=domain(cases), timing_groups=group_names(cases)
            )  # fmt: skip
            return self

        monkeypatch.setattr(DefaultPredictor, "fit", fit)
        return seen

    return spy


def test_gpus_left_out(cases: Cases, spied: Callable[..., Seen]) -> None:
    shapes = ['{"m":512,"n":512,"k":512}', '{"m":4096,"n":4096,"k":1024}']
    ops = pd.DataFrame({"op": "linear", "shape": shapes, "dtype": "fp16", "direction": "forward", "device": "h200",
                        "devices": 1, "device_ms": [0.01, 0.1], "dataset": "ours"})  # fmt: skip
    found = TrainingCases(on_our_own(cases), operator_cases(ops), published_models=cases)
    seen = spied()
    predicted = models_predicted(found, predictor=QUICK, calibration=SCORES)
    assert len(predicted) == len(cases.rows)
    assert (predicted["low_ms"] <= predicted["predicted_ms"]).all()
    assert (predicted["predicted_ms"] <= predicted["high_ms"]).all()
    for device, known in zip(sorted(cases.rows["device"].unique()), seen, strict=True):
        assert known.published_models is not None and len(known.published_models)
        assert device not in set(known.published_models.rows["device"])
    lines = model_lines(predicted)
    assert set(lines["predictor"]) == set(devices.PREDICTORS)
    each = lines[(lines["bound"] == "all") & (lines["device"] != "all")]
    assert each["n"].max() == 3
    shown = devices.shown(lines)
    assert set(shown[shown["device"] != "all"]["regime"]) == {"all"}
    default = shown[(shown["data set"] == "all") & (shown["predictor"] == "default")].set_index("regime")
    assert set(default.index) - {"all"} <= {"device-bound", "host-bound"}
    assert default["n"]["all"] == len(cases.rows) == default["n"].drop("all").sum()
    assert default["interval_coverage"].between(0, 1).all()
    spied(HostCosts(np.ones(len(COUNTED)), 0.0, 4.0))  # a fit that takes no time
    again = models_left_out(found, predictor=QUICK, calibration=SCORES)
    assert again.columns.equals(lines.columns) and set(again["device"]) == {"all", *cases.rows["device"]}


def with_hosts_of_the_set(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, spied: Callable[..., Seen], host: HostCosts, slower: float
) -> pd.Series:
    """Predicted over measured of a Titan RTX with the hosts of the set, all so much slower; by way of measuring."""
    copied = cases.rows["copy_ms"] * 50  # enough to see whether it is forgotten
    rows = cases.rows.assign(copy_ms=copied, latency_ms=slower * host.host_ms(cases.launches) + copied)
    published = replace(cases, rows=rows)
    monkeypatch.setattr(devices, "ENOUGH_CALLS", 2)
    spied(host)
    nothing = published.take(np.zeros(len(rows), dtype=bool))
    found = TrainingCases(on_our_own(published), nothing, published_models=published)
    predicted = models_predicted(found, predictor=QUICK, calibration=SCORES)
    mine = predicted[predicted["device"] == "titan-rtx"]
    return (mine["predicted_set_ms"] / (mine["latency_ms"] - mine["copy_ms"])).groupby(mine["protocol"]).median()


def test_the_speed_of_a_sets_hosts_follows_from_its_other_gpus(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, spied: Callable[..., Seen]
) -> None:
    # An op takes 1 ms on the device.
    host = HostCosts(np.full(cases.launches.shape[1], 4000.0), 0.0, 40.0, default_slowness=0.9)
    ratio = with_hosts_of_the_set(cases, monkeypatch, spied, host, slower=1.7)
    assert ratio["pytorch_gpu_benchmark"] == pytest.approx(1.0, abs=0.01)
    # Too few other calls were measured so: as slow as by default.
    assert ratio[OLD] == pytest.approx(0.9 / 1.7, abs=0.01)


def test_device_bound_calls_show_nothing_of_hosts(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, spied: Callable[..., Seen]
) -> None:
    def busy(_: Any, asked: Cases) -> tuple[np.ndarray, np.ndarray]:
        return np.where(asked.rows["device"] == "titan-rtx", 1e-3, 1e6), np.zeros(len(asked.rows))

    monkeypatch.setattr("forerun.predictors.default.fit.device_ms_and_spread", busy)
    host = HostCosts(np.full(cases.launches.shape[1], 100.0), 0.0, 40.0, default_slowness=0.9)
    ratio = with_hosts_of_the_set(cases, monkeypatch, spied, host, slower=1.7)
    assert ratio["pytorch_gpu_benchmark"] == pytest.approx(0.9 / 1.7, abs=0.01)


def published_devices(cases: TrainingCases) -> set[str]:
    """The devices of the published operators among training cases."""
    assert cases.published_operators is not None
    return set(cases.published_operators.rows["device"])


def summed(model: str = "bert-large-uncased", **more: Any) -> dict[str, Any]:
    """A model row of NeuSight's with sums over the model."""
    row = {"dataset": "neusight", "model": model, "family": "bert", "device": "l4", "mode": "inference", "batch": 8,
           "seq_len": 512, "extra": None}  # fmt: skip
    sums = {name: more.pop(name) for name in ("op_ms", "neusight_op_ms") if name in more}
    return row | {"extra": json.dumps(sums)} | more


def test_operators_of_a_sum() -> None:
    every = {"bmm": 1.0, "linear": 2.0, "softmax": 3.0, "layer_norm": 4.0}
    models = pd.DataFrame([
        summed(op_ms=every, neusight_op_ms={"bmm": 1.5}),
        summed(op_ms=every, mode="training"),
        summed(op_ms=every, batch=1),
        summed("facebook/opt-1.3b", family="opt", op_ms=every, seq_len=2048, device="h100-sxm"),
        summed("neusight/gpt3_xl", family="gpt2", op_ms={"linear": 2.0}, seq_len=2048),
        summed("neusight/switchxl4", family="switch", op_ms=every),
        summed(op_ms=every, device="t4"),
        summed(),
        summed(op_ms=every, dataset="ours"),
    ])  # fmt: skip
    sums, ops = neusight.asked(models)
    assert sums["op"].tolist() == [*every] * 4 + ["linear"]
    assert sums["device_ms"].tolist() == [*every.values()] * 4 + [2.0]
    assert sums["NeuSight"].dropna().to_dict() == {0: 1.5}
    assert (sums["device"][ops["sum"]].to_numpy() == ops["device"].to_numpy()).all()
    shapes = pd.DataFrame([json.loads(text) for text in ops["shape"]])
    flops = (
        (2 * shapes["b"].fillna(1) * shapes["m"] * shapes["n"] * shapes["k"] * ops["count"]).groupby(ops["sum"]).sum()
    )
    layers, tokens = 24, 8 * 512
    plain = layers * 2 * tokens * 12 * 1024**2
    assert flops[0] == layers * 2 * 2 * tokens * 512 * 1024  # scores, then values
    assert flops[1] == plain
    assert flops[5] == plain + 2 * tokens * 1024 * (30522 + 1024)  # training: the head of masked words
    assert flops[16] == 2 * 8 * 2048 * 3072 * (layers * 12 * 3072 + 50257)
    copied = ops[ops["op"] == "transpose"].set_index("sum")
    assert copied["count"].to_dict() == {0: 3 * layers, 4: 3 * layers}  # not of one sequence, not of OPT
    assert json.loads(copied["shape"][0]) == {"b": 8, "rows": 512, "cols": 1024}
    norms = ops[ops["op"] == "layer_norm"].groupby("sum")["count"].sum()
    assert norms.to_dict() == {3: 49, 7: 50, 11: 49, 15: 49}


def test_sums_over_models_on_gpus_left_out(cases: Cases, spied: Callable[..., Seen]) -> None:
    frame = pd.DataFrame([
        {"op": "linear", "shape": '{"m":512,"n":512,"k":512}', "dtype": "fp32", "direction": "forward", "device": name,
         "devices": 1, "device_ms": 1.5, "dataset": "neusight", "runtime": "eager", "timing_group": "neusight"}
        for name in ("t4", "l4", "a100-pcie-80gb")
    ])  # fmt: skip
    public = operator_cases(frame)
    found = TrainingCases(on_our_own(cases), public, public)
    # Calls of 24 layers, 1.5 ms each; before the products, three copies a layer of 1 ms that are not timed.
    exact = {"bmm": 48 * 1.5 + 72 * 1.0, "linear": 6 * 24 * 1.5, "softmax": 24 * 1.5, "layer_norm": 49 * 1.5}
    models = pd.DataFrame([
        summed(op_ms=exact, neusight_op_ms={op: ms * 1.25 for op, ms in exact.items()}),
        summed(op_ms={"bmm": 100.0}, neusight_op_ms={"bmm": 95.0}),
        summed(op_ms={"bmm": 288.0}, neusight_op_ms={"bmm": 144.0}, device="a100-pcie-80gb"),
    ])  # fmt: skip
    seen = spied(HostCosts(np.ones(len(COUNTED)), 0.0, 4.0))
    lines = devices.operators_left_out(found, public, models, predictor=QUICK)
    assert [published_devices(one) for one in seen] == [
        {"t4", "a100-pcie-80gb"},
        {"t4", "l4"},
    ]  # one fit a GPU for rows and sums
    rows, sums = (lines[(lines["data set"] == neusight.DATASET) == is_sum] for is_sum in (False, True))
    assert rows[rows["predictor"] == "default"]["mape"].tolist() == pytest.approx([0.0] * (len(rows) // 3))
    mape = sums.set_index(["device", "op", "predictor"])["mape"]
    assert set(sums["op"]) == set(exact)
    assert set(sums["predictor"]) == {"roofline", "NeuSight", "default"}
    assert mape["l4", "bmm", "NeuSight"] == pytest.approx((0.25 + 0.05) / 2)
    assert mape["all", "bmm", "NeuSight"] == pytest.approx((0.25 + 0.05 + 0.5) / 3)
    assert mape["l4", "bmm", "default"] == pytest.approx((0.0 + 0.44) / 2)  # 144 ms predicted
    assert mape["a100-pcie-80gb", "bmm", "default"] == pytest.approx(0.5)
    for op in ("linear", "softmax", "layer_norm"):
        assert mape["l4", op, "default"] == pytest.approx(0.0)
    assert 0 < mape["l4", "linear", "roofline"] < 1


def test_operators_on_gpus_left_out(cases: Cases, spied: Callable[..., Seen]) -> None:
    shapes = ['{"m":512,"n":512,"k":512}', '{"m":4096,"n":4096,"k":1024}']
    frame = pd.DataFrame([
        {"op": "linear", "shape": shape, "dtype": "fp32", "direction": "forward", "device": device, "devices": 1,
         "device_ms": 0.1, "dataset": "neusight", "runtime": None, "timing_group": "neusight"}
        for shape in shapes for device in ("t4", "l4", "a100-pcie-80gb")
    ])  # fmt: skip
    public = operator_cases(frame)
    own = operator_cases(frame.assign(device="h200", dataset="ours", timing_group=""))
    found = TrainingCases(on_our_own(cases), own, public)
    seen = spied()
    lines = devices.operators_left_out(found, public, pd.DataFrame([summed(op_ms={})]), predictor=QUICK)
    assert [published_devices(one) for one in seen] == [
        {"t4", "a100-pcie-80gb"},
        {"t4", "l4"},
    ]  # nothing was asked of the H100 and the B200
    every = lines[lines["op"] == "all"].set_index(["device", "predictor"])["n"]
    assert every["l4", "default"] == every["a100-pcie-80gb", "roofline"] == 2
    assert every["all", "one ratio per op"] == 4
    assert np.isfinite(lines["mape"]).all()
