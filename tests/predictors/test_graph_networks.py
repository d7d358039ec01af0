"""dippm and trappm: graphs as arrays, networks that learn, weights that are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forerun
from forerun.data.store import Store
from forerun.device import load_device
from forerun.evaluate.check import check_predictor
from forerun.evaluate.held_out import held_out
from forerun.frontends import load_graph
from forerun.graph.profile import profile
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.dippm import DippmPredictor
from forerun.predictors.published.gnn import arrays, features
from forerun.predictors.published.gnn.networks import VARIANTS
from forerun.predictors.published.gnn.predictor import GraphPredictor, graphs_at_batches, graphs_of
from forerun.predictors.published.gnn.training import Schedule, find_learning_rate
from forerun.predictors.published.trappm import TrappmPredictor, encoder
from forerun.training.gather import gather
from forerun.workload import Workload

WHERE = (
    "device = 'h200' and model like 'cnn:depth=_,%' and dtype = 'fp32' and amp is null "
    "and (mode = 'inference' or batch = 64)"
)


@pytest.fixture(scope="module")
def cases() -> TrainingCases:
    """Small networks in inference and training, as they were measured."""
    return gather(Store(), public=False, where=WHERE, operators_kept=0)


@pytest.fixture(scope="module")
def encoder_file(cases: TrainingCases, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder that learned from graphs alone."""
    graphs = graphs_of(cases.models)
    network, names, losses = encoder.pretrain(graphs, width=16, epochs=4, batch_size=8)
    assert losses[-1] < losses[0]
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    encoder.save(path, network, names)
    return path


def small(name: str, file: Path, **settings: object) -> GraphPredictor:
    given = {"width": 16, "epochs": 25, "learning_rate": 3e-3, "batch_size": 8, **settings}
    return DippmPredictor(**given) if name == "dippm" else TrappmPredictor(encoder=str(file), **given)  # type: ignore[arg-type]


def graph_of(work: Workload) -> arrays.GraphArrays:
    return graphs_at_batches(profile(load_graph(work), work.dtype))[0]


def test_features_have_the_published_lengths_and_the_true_edges() -> None:
    graph = graph_of(Workload("resnet18", batch=4))
    assert features.short_features(graph).shape == (len(graph.names), 32)
    assert features.long_features(graph, features.vocabulary([graph])).shape == (len(graph.names), 113)
    assert len(features.static_vector(graph, features.SHORT_STATIC)) == 5
    assert len(features.static_vector(graph, features.LONG_STATIC)) == 6
    captured = load_graph(Workload("resnet18", batch=4))
    assert [tuple(edge) for edge in graph.edges.T.tolist()] == captured.edges()
    first = next(i for i, op in enumerate(captured.ops) if op.kind == "conv")
    assert graph.outputs[first].tolist() == [4, 64, 112, 112, 0, 0]
    assert graph.attributes[first].tolist()[:2] == [49, 2]  # 7 x 7, every second pixel
    assert graph.parameters[first] == 3 * 64 * 49


def test_graphs_are_written_and_read_back(tmp_path: Path) -> None:
    graphs = [graph_of(Workload("cnn:depth=2,filters=16,classes=10", batch=b)) for b in (1, 8)]
    arrays.write(tmp_path / "graphs.npz", graphs, targets=np.array([1.0, 2.0]))
    found, more = arrays.read(tmp_path / "graphs.npz")
    assert more["targets"].tolist() == [1.0, 2.0]
    for one, other in zip(graphs, found, strict=True):
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in vars(one))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(forerun.ForerunError, match="holds no graphs"):
        arrays.read(tmp_path / "broken.npz")


@pytest.mark.parametrize("name", ["dippm", "trappm"])
def test_it_learns_is_kept_and_keeps_the_contract(
    name: str, cases: TrainingCases, encoder_file: Path, tmp_path: Path
) -> None:
    predictor = small(name, encoder_file)
    predictor.fit(cases)
    every = predictor.losses_ if isinstance(predictor.losses_, dict) else {"all": predictor.losses_}  # type: ignore[attr-defined]
    assert all(losses[-1] < 0.7 * losses[0] for losses in every.values()), every
    found = predictor.predict_cases(cases.models)
    asked = (cases.models.rows["mode"] == predictor.modes[0]).to_numpy()
    assert found[asked].notna().all().all() and found[~asked].isna().all().all()
    measured = cases.models.rows["latency_ms"][asked]
    error = np.abs(np.log(found["predicted_latency_ms"][asked] / measured)).median()
    assert error < np.abs(np.log(measured / measured.median())).median()

    predictor.calibrate(cases.models.rows.assign(**found))
    predictor.save(tmp_path / "kept")
    again = type(predictor).load(tmp_path / "kept")
    assert again.predict_cases(cases.models).equals(found)
    done = check_predictor(lambda: type(predictor).load(tmp_path / "kept"))
    assert "saved" in done

    work = Workload("cnn:depth=4,filters=16,classes=10", batch=32, mode=predictor.modes[0])
    answer = forerun.predict(work.model, "h200", batch=32, mode=work.mode, predictor=again)
    assert answer.latency_ms.low < answer.latency_ms.value < answer.latency_ms.high
    with pytest.raises(forerun.ForerunError, match="knows h200 and no other device"):
        forerun.predict(work.model, "a100", batch=32, mode=work.mode, predictor=again)


def test_one_answer_at_any_number_of_batch_sizes(cases: TrainingCases, encoder_file: Path) -> None:
    predictor = small("dippm", encoder_file, steps=2).fit(cases)
    from forerun.frontends import load_graphs

    work = Workload("cnn:depth=2,filters=16,classes=10", batch=32)
    scalable = load_graphs(work)[1]
    assert scalable is not None
    h200 = load_device("h200")
    many = predictor.times(profile(scalable, "fp32", np.array([1, 8, 32])), [h200], work)
    alone = predictor.times(profile(load_graph(work), "fp32"), [h200], work)
    assert many.latency_ms[2, 0] == pytest.approx(alone.latency_ms[0, 0], rel=1e-5)


def test_numbers_of_the_device_teach_several(cases: TrainingCases, encoder_file: Path, tmp_path: Path) -> None:
    """The same networks on a second device, five times as slow: answers differ by the device alone."""
    inference = cases.models.take((cases.models.rows["mode"] == "inference").to_numpy())
    rows = inference.rows
    slower = replace(inference, rows=rows.assign(device="t4", latency_ms=5 * rows["latency_ms"], simulated="{}"))
    both = TrainingCases(inference, cases.operators, simulated_models=slower)
    predictor = small("dippm", encoder_file, hardware=True, epochs=40).fit(both)
    assert predictor.devices_ == ["h200"] and predictor.simulated_devices_ == ["t4"]
    work = Workload("cnn:depth=4,filters=16,classes=10", batch=32)
    columns = profile(load_graph(work), work.dtype)
    devices = [load_device("h200"), load_device("t4")]
    fast, slow = predictor.times(columns, devices, work).latency_ms[0]
    assert slow > 2 * fast
    assert predictor.basis_for(devices[1]) == "simulated" and predictor.problem_of(load_device("l4"))
    predictor.save(tmp_path)
    assert DippmPredictor.load(tmp_path).times(columns, devices, work).latency_ms[0, 1] == pytest.approx(slow)
    found = held_out(small("dippm", encoder_file, hardware=True, epochs=2), both, "random", folds=2)
    assert found["predicted_latency_ms"].notna().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_layer_takes_a_step(variant: str, cases: TrainingCases, encoder_file: Path) -> None:
    predictor = small("dippm", encoder_file, variant=variant, steps=2, epochs=1)
    assert np.isfinite(predictor.fit(cases).predict_cases(cases.models).iloc[:, 0].dropna()).all()


def test_rows_are_held_out(cases: TrainingCases, encoder_file: Path) -> None:
    found = held_out(small("dippm", encoder_file, epochs=2), cases, "random", folds=2)
    inference = found[found["mode"] == "inference"]
    assert inference["predicted_latency_ms"].notna().all()


def test_a_learning_rate_is_looked_for(cases: TrainingCases, encoder_file: Path) -> None:
    predictor = small("dippm", encoder_file)
    assert isinstance(predictor, DippmPredictor)
    mine = predictor.cases_of(cases)
    targets = predictor.standardised(mine.rows[list(predictor.targets)].to_numpy(dtype=float))
    examples = predictor._examples(graphs_of(mine)).with_targets(targets)
    rate = find_learning_rate(predictor._new_network(), examples, np.arange(len(examples)), Schedule(1, None, 8))
    assert 1e-6 < rate < 0.1


def test_what_cannot_be_learned_is_one_sentence(cases: TrainingCases, encoder_file: Path, tmp_path: Path) -> None:
    training = cases.models.take((cases.models.rows["mode"] == "training").to_numpy())
    with pytest.raises(forerun.ForerunError, match="learns from rows of inference that ran eagerly, and there are 0"):
        small("dippm", encoder_file).fit(TrainingCases(training, cases.operators))
    without = _with_rows(cases, cases.models.rows.assign(energy_j=np.nan))
    with pytest.raises(forerun.ForerunError, match="energy_j was measured in fewer than"):
        small("dippm", encoder_file).fit(without)
    with pytest.raises(forerun.ForerunError, match="loss is no longer a number"):
        small("dippm", encoder_file, learning_rate=1e30, epochs=3).fit(cases)
    rows = cases.models.rows.copy()
    rows.loc[rows.index % 2 == 0, "device"] = "a100-sxm4-80gb"
    with pytest.raises(forerun.ForerunError, match="one device at a time"):
        small("dippm", encoder_file).fit(_with_rows(cases, rows))
    with pytest.raises(forerun.ForerunError, match="no graph layer 'transformer'"):
        small("dippm", encoder_file, variant="transformer").fit(cases)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(forerun.ForerunError, match="holds no encoder"):
        small("trappm", tmp_path / "broken.safetensors").fit(cases)


def _with_rows(cases: TrainingCases, rows: pd.DataFrame) -> TrainingCases:
    return TrainingCases(replace(cases.models, rows=rows), cases.operators)


def test_a_fitted_network_learns_on_from_few_measurements(
    cases: TrainingCases, encoder_file: Path, tmp_path: Path
) -> None:
    small("trappm", encoder_file).fit(cases).save(tmp_path / "first")
    few = cases.models.take(np.arange(len(cases.models)) % 2 == 0)
    begun = small("trappm", encoder_file, epochs=1, start=str(tmp_path / "first"))
    fresh = small("trappm", encoder_file, epochs=1)
    begun.fit(TrainingCases(few, cases.operators))
    fresh.fit(TrainingCases(few, cases.operators))
    assert begun.losses_["latency_ms"][0] < fresh.losses_["latency_ms"][0]  # type: ignore[attr-defined]


def test_the_rate_is_one_at_which_the_loss_falls(cases: TrainingCases, encoder_file: Path) -> None:
    """Batches differ by more than a step changes the loss: rates must not be judged by their losses."""
    predictor = small("dippm", encoder_file, learning_rate=None, epochs=4)
    predictor.fit(cases)
    assert predictor.losses_[-1] < predictor.losses_[0]


def test_what_it_does_not_know_is_unknown() -> None:
    """It was fitted to whole H200s and to latencies alone."""
    found = forerun.predict("resnet18", "h200", batch=3, predictor="dippm")
    assert found.bound is None and found.device_ms is None
    assert found.mig_options and all(option.latency_ms is None for option in found.mig_options)
    assert "unknown" in str(found) and "bound" not in str(found)
