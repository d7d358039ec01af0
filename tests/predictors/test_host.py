"""The host of a prediction: a probe of this machine, hosts known by name, and what the answer says of them."""

from __future__ import annotations

import datetime
import json
import math
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import entry_points
import pytest

from forerun import cli, compare, explain, predict
from forerun.device.cpus import all_cpus, deviation, find_cpu, reference_rating
from forerun.device.hosts import all_hosts, find_host
from forerun.errors import ForerunError
from forerun.measure.core import meters
from forerun.prediction import Prediction

MODEL = "cnn:depth=2,filters=4,classes=10"
Words = Callable[..., tuple[int, str, str]]


class LocalGpu(meters.Meter):
    """This machine's GPU, as its driver names it; what is launched on it runs on the CPU."""

    kind = "fake"
    device = "cpu"
    priority = 100

    @classmethod
    def available(cls) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": "NVIDIA A100-SXM4-40GB"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Words:
    """Runs a command in this process: exit code, output, errors."""

    monkeypatch.setenv("COLUMNS", "200")

    def words(*given: str) -> tuple[int, str, str]:
        code = cli.run(list(given))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return words


@contextmanager
def machine_with_a_gpu(folder: Path) -> Iterator[None]:
    """A store of its own, on a machine that has an A100."""
    found = [EntryPoint("fake", "test_host:LocalGpu", "forerun.meters")]
    with pytest.MonkeyPatch.context() as patch, entry_points.installed(meters.METERS, *found, alone=True):
        patch.setenv("FORERUN_STORE", str(folder))
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    with machine_with_a_gpu(tmp_path / "store"):
        yield tmp_path / "store"


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `forerun measure host` saves; the speed is set, since that of this machine moves."""
    folder = tmp_path_factory.mktemp("probe")
    with machine_with_a_gpu(folder):
        assert cli.run(["measure", "host"]) == 0
    saved: dict[str, Any] = json.loads((folder / "host.json").read_text())
    assert saved["device_id"] == "a100-sxm4-40gb" and saved["slowness"] > 0 and not saved["dispatch_only"]
    return {**saved, "slowness": 2.0}


@pytest.fixture
def probed(store: Path, probe: dict[str, Any]) -> Callable[..., None]:
    """A machine whose host was probed; what was saved can be changed."""

    def change(**fields: Any) -> None:
        store.mkdir(exist_ok=True)
        kept = {name: value for name, value in {**probe, **fields}.items() if value is not None}
        (store / "host.json").write_text(json.dumps(kept))

    change()
    return change


def ago(**age: float) -> str:
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(**age)).isoformat()


def latency(p: Prediction) -> float:
    assert p.latency_ms is not None
    return p.latency_ms.value


def host_notes(p: Prediction) -> list[str]:
    return [note for note in p.notes if "host" in note]


def test_a_fresh_probe_is_used_for_the_gpu_of_this_machine_alone(probed: Callable[..., None]) -> None:
    own, given = predict(MODEL, "a100"), predict(MODEL, "a100", host=2.0)
    assert latency(own) == latency(given) and own.host is not None
    assert (own.host.kind, own.host.slowness, own.host.fastest_ms) == ("probe", 2.0, None)
    assert own.assumptions["host_ms"] == "on this machine's host"
    (note,) = host_notes(own)
    assert "this machine's host is assumed; a launch takes 2.00 times as long" in note and "minutes ago" in note
    assert predict(MODEL, "a100/1g.5gb").host.kind == "probe"  # type: ignore[union-attr]
    other = predict(MODEL, "t4")
    assert other.host is not None and other.host.kind == "reference"
    assert latency(other) == latency(predict(MODEL, "t4", host="reference"))
    explained = explain(MODEL, "a100")
    assert explained.latency_ms == pytest.approx(latency(own)) and explained.host == "this machine's host"
    # The rows of a table get the same.
    assert compare(MODEL, ["a100"])["latency_ms"][0] == pytest.approx(latency(predict(MODEL, "a100", host="reference")))


def test_an_explicit_host_wins_over_the_probe(probed: Callable[..., None]) -> None:
    for asked, kind, slowness in (
        ("reference", "reference", None), ("forerun-h200", "named", 1.0), (1.5, "given", 1.5), ("this", "probe", 2.0),
    ):  # fmt: skip
        host = predict(MODEL, "a100", host=asked).host
        assert host is not None and (host.kind, host.slowness) == (kind, slowness)


def test_predictors_and_devices_without_a_host_are_not_asked_for_one(probed: Callable[..., None]) -> None:
    for device, predictor in (("a100", "dummy"), ("xeon-emr-2vcpu", "default")):
        found = predict(MODEL, device, predictor=predictor)
        assert found.host is None and "host_ms" not in found.assumptions and not host_notes(found)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"measured_at": ago(hours=25)}, "this machine's was probed 25 hours ago: run forerun measure host"),
        ({"measured_at": ago(days=9)}, "this machine's was probed 9 days ago: run forerun measure host"),
        ({"measured_at": ago(hours=-2)}, "has a date in the future: run forerun measure host"),
        ({"measured_at": "yesterday"}, "is damaged or of an older version: run forerun measure host"),
        ({"measured_at": None}, "is damaged or of an older version: run forerun measure host"),
        ({"measured_at": "2026-01-01T00:00:00"}, "is damaged or of an older version"),  # of no time zone
        ({"slowness": "2"}, "is damaged or of an older version"),
        ({"slowness": True}, "is damaged or of an older version"),
        ({"slowness": 1e9}, "is damaged or of an older version"),
        ({"slowness": float("nan")}, "is damaged or of an older version"),
        ({"device_id": 7}, "is damaged or of an older version"),
        ({"machine": f"not {platform.node()}"}, "was taken on another machine: run forerun measure host on this one"),
    ],
)
def test_a_probe_that_says_nothing_of_today_is_not_used_and_a_note_says_why(
    probed: Callable[..., None], run: Words, fields: dict[str, Any], reason: str
) -> None:
    probed(**fields)
    found = predict(MODEL, "a100")
    assert found.host is not None and found.host.kind == "reference" and reason in found.host.reason
    assert latency(found) == latency(predict(MODEL, "a100", host="reference"))
    assert any("the reference host is assumed" in note and reason in note for note in found.notes)
    code, out, err = run("predict", MODEL, "--device", "a100", "--host", "this")
    if "ago" in reason:  # old, but what was asked for
        assert code == 0 and "on this machine's host" in out and "run forerun measure host" in out
    else:
        assert code == 2 and reason in err and err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_ignored_with_a_note(store: Path, run: Words, content: bytes) -> None:
    store.mkdir()
    (store / "host.json").write_bytes(content)
    found = predict(MODEL, "a100")
    assert found.host is not None and found.host.kind == "reference"
    assert any("the saved host probe" in note and "run forerun measure host" in note for note in found.notes)
    code, _, err = run("predict", MODEL, "--device", "a100", "--host", "this")
    assert code == 2 and err.count("\n") == 1 and "the saved host probe" in err
    code, out, _ = run("hosts", "--json")
    assert code == 0 and json.loads(out)["this"]["slowness"] is None


def test_a_probe_of_the_dispatcher_alone_is_not_used_by_itself(store: Path, run: Words) -> None:
    code, out, err = run("measure", "host", "--device", "cpu")
    assert code == 0, err
    assert "predictions use it with --host this" in out
    found = predict(MODEL, "a100")
    assert found.host is not None and found.host.kind == "reference" and not found.host.reason


def test_without_a_probe_the_answer_names_the_host_and_what_a_probe_would_change(store: Path, run: Words) -> None:
    found = predict(MODEL, "a100")
    assert found.bound == "host" and found.host is not None and found.host.kind == "reference"
    assert found.host.fastest_ms is not None and found.host.slowest_ms is not None
    assert found.host.fastest_ms < latency(found) < found.host.slowest_ms
    slowest = max(h.high or h.slowness for h in all_hosts())
    assert found.host.slowest_ms == pytest.approx(latency(predict(MODEL, "a100", host=slowest)))
    (note,) = host_notes(found)
    assert note.startswith("latency is host-bound and the reference host is assumed; known hosts")
    assert note.endswith("forerun measure host calibrates this one")
    assert Prediction.from_json(found.to_json()) == found
    code, out, _ = run("predict", MODEL, "--device", "a100")
    assert code == 0 and "on the reference host" in out and "forerun measure host calibrates this one" in out
    older = {name: value for name, value in found.to_dict().items() if name != "host"}
    assert Prediction.from_dict(older).host is None
    # Where the device sets the pace, a probe changes little.
    busy = predict("cnn:depth=4,filters=64", "t4", batch=512)
    assert busy.bound == "device" and busy.host is not None and busy.host.fastest_ms is None and not host_notes(busy)


def test_the_range_of_known_hosts_is_that_of_every_predictor(store: Path) -> None:
    found = predict(MODEL, "a100", predictor="roofline")
    slowest = max(h.high or h.slowness for h in all_hosts())
    assert found.host is not None
    assert found.host.slowest_ms == pytest.approx(latency(predict(MODEL, "a100", predictor="roofline", host=slowest)))


def test_a_measured_case_names_the_host_that_measured_it() -> None:
    found = predict("resnet18", "h200", batch=1)
    assert found.basis == "measured" and found.bound == "host"
    assert found.host is not None and found.host.kind == "measured" and "Xeon" in found.host.name
    assert not any("calibrates this one" in note for note in found.notes)


def test_hosts_are_listed_with_their_source(store: Path, run: Words) -> None:
    code, out, _ = run("hosts")
    assert code == 0 and all(host.id in out for host in all_hosts()) and "not probed yet" in out
    code, out, _ = run("hosts", "--json")
    listed = json.loads(out)["hosts"]
    assert code == 0 and [host["id"] for host in listed] == [host.id for host in all_hosts()]
    for host in listed:
        assert 0.5 < host["slowness"] < 2.5 and host["rows"] and host["source"] and host["date"] >= "2019"
    code, out, _ = run("hosts", "Forerun_H200")
    assert code == 0 and "72 probes" in out and "our own probes" in out
    assert json.loads(run("hosts", "forerun-h200", "--json")[1])["slowness"] == 1.0


def test_a_probe_is_listed_beside_them(probed: Callable[..., None], run: Words) -> None:
    code, out, _ = run("hosts")
    assert code == 0 and "this machine's host, with a100-sxm4-40gb, probed" in out and "2.00" in out


@pytest.mark.parametrize("words", [("hosts", "titan"), ("predict", MODEL, "--device", "a100", "--host", "titan")])
def test_an_unknown_host_is_one_sentence_with_the_known_names(run: Words, words: tuple[str, ...]) -> None:
    code, _, err = run(*words)
    assert code == 2 and err.count("\n") == 1 and "'titan'" in err
    assert all(host.id in err for host in all_hosts())


def test_a_named_host_is_that_slowness(store: Path) -> None:
    known = find_host("pytorch-gpu-benchmark-titan-rtx")
    assert known is not None
    named, given = predict(MODEL, "a100", host=known.id), predict(MODEL, "a100", host=known.slowness)
    assert named.latency_ms == given.latency_ms
    assert any(known.rows in note for note in named.notes) and not host_notes(given)
    with pytest.raises(ForerunError, match="is a CPU and its own host"):
        predict(MODEL, "xeon-emr-2vcpu", host=known.id)


def test_predicting_with_a_probe_asks_no_driver(
    probed: Callable[..., None], run_forerun: Callable[..., subprocess.CompletedProcess[str]], store: Path
) -> None:
    """A process that has no such meter finds the device by the saved probe."""
    predict(MODEL, "a100")  # captured: the command reads the graph from the cache
    done = run_forerun("predict", MODEL, "--device", "a100", "--json", FORERUN_STORE=str(store))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["host"]["kind"] == "probe"


def width(p: Prediction) -> float:
    assert p.latency_ms is not None
    return math.log(p.latency_ms.high / p.latency_ms.low)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("AMD EPYC 7763", "AMD EPYC 7763"), ("epyc_7763", "AMD EPYC 7763"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "Intel Xeon Platinum 8380"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "Intel Core i9-13900K"), ("ryzen-9-7950x", "AMD Ryzen 9 7950X"),
    ],
)  # fmt: skip
def test_a_host_may_be_named_by_its_cpu_as_people_and_systems_write_it(store: Path, written: str, name: str) -> None:
    cpu = find_cpu(written)
    assert cpu is not None and cpu.name == name and cpu.rating is not None
    assert cpu.slowness == pytest.approx(reference_rating() / cpu.rating)


def test_a_cpu_says_how_slow_a_host_is_less_surely_than_a_probe(store: Path, run: Words) -> None:
    cpu = find_cpu("Xeon Platinum 8380")
    assert cpu is not None and cpu.slowness > 1
    named, given = predict(MODEL, "a100", host="Xeon Platinum 8380"), predict(MODEL, "a100", host=cpu.slowness)
    assert latency(named) == latency(given) and width(named) > 1.02 * width(given)
    assert named.host is not None and named.host_ms is not None and given.host_ms is not None
    assert named.host_ms.high / named.host_ms.low > given.host_ms.high / given.host_ms.low
    assert (named.host.kind, named.host.rating, named.host.source) == ("cpu", cpu.rating, cpu.source)
    (note,) = host_notes(named)
    assert "a host with Intel Xeon Platinum 8380 is assumed" in note and f"rating of {cpu.rating:,}" in note
    assert Prediction.from_json(named.to_json()) == named
    row = compare(MODEL, ["a100"], host="Xeon Platinum 8380").iloc[0]
    assert row["latency_high_ms"] / row["latency_low_ms"] == pytest.approx(math.exp(width(named)))
    assert explain(MODEL, "a100", host="Xeon Platinum 8380").host == "a host with Intel Xeon Platinum 8380"
    roofline = (predict(MODEL, "a100", predictor="roofline", host=host) for host in ("Xeon Platinum 8380", 1.2))
    assert width(next(roofline)) > 1.02 * width(next(roofline))
    # Where the device sets the pace, the host's speed is no matter.
    busy = [predict("cnn:depth=4,filters=64", "t4", batch=512, host=host) for host in ("EPYC 7763", 1.0)]
    assert width(busy[0]) == pytest.approx(width(busy[1]), rel=1e-3)
    code, out, _ = run("predict", MODEL, "--device", "a100", "--host", "amd-epyc-7763", "--json")
    assert code == 0 and json.loads(out)["host"]["name"] == "a host with AMD EPYC 7763"


def test_a_misspelt_cpu_is_told_its_near_misses_and_is_not_taken_for_one(run: Words) -> None:
    for words in (("hosts", "EPYC 7743"), ("predict", MODEL, "--device", "a100", "--host", "EPYC 7743")):
        code, _, err = run(*words)
        assert code == 2 and err.count("\n") == 1 and "'EPYC 7743'" in err and "Did you mean epyc-7" in err


def test_cpus_are_listed_with_their_source(store: Path, run: Words) -> None:
    code, out, _ = run("hosts")
    assert code == 0 and f"{len(all_cpus())} CPUs" in out and "EPYC (" in out
    listed = json.loads(run("hosts", "--json")[1])["cpus"]
    assert [cpu["name"] for cpu in listed] == sorted({cpu.name for cpu in all_cpus()})
    for cpu in listed:
        assert 0.3 < cpu["slowness"] < 3 and cpu["source"] and cpu["date"] >= "2022" and not find_host(cpu["id"])
        assert (cpu["rating"] is None and cpu["launches"]) or 1000 < cpu["rating"] < 6000
    code, out, _ = run("hosts", "EPYC 7763")
    assert code == 0 and "rating of 2,515" in out and "PassMark" in out
    assert "published launches" in run("hosts", "Grace")[1]
    # Of one CPU both are known: its launches are as far from its rating as is assumed of all, or less.
    measured = find_cpu("Xeon Platinum 8480C")
    assert measured is not None and measured.rating is not None and measured.launches
    assert abs(math.log(reference_rating() / measured.rating / measured.slowness)) < deviation()
