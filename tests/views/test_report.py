"""`forerun report`: its numbers are those of `forerun.predict`, its page opens with no network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import browser
import pytest
from torch import nn

import forerun
from forerun.advice import data_parallel
from forerun.errors import ForerunError
from forerun.measure import machine, saved_ceilings, short_run, tensor_kernels
from forerun.measure.ceilings import Ceilings
from forerun.report import summary
from forerun.report.make import Report
from forerun.report.serving import serving
from forerun.report.study import Job, Precision, Study

Run = Callable[..., subprocess.CompletedProcess[str]]
MODEL = "unet:base=44,levels=3"  # which was measured on an H200
DEVICES = ["v100-16gb", "h200"]
BATCH = 16
#: Networks of single precision add up in another order for one device than for many.
SAME = 1e-7


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "report.html"


@pytest.fixture(scope="module")
def found(place: Path) -> Report:
    place.write_text("an older page")
    return forerun.make_report(MODEL, DEVICES, place, batch=BATCH, dataset_size=1000, epochs=3)


def embedded(html: str, name: str = "report-data") -> Any:
    (text,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)
    return json.loads(text)


def predicted(row: dict[str, Any], mode: str) -> forerun.Prediction:
    request = {"batch": row["batch"], "dtype": row["dtype"], "amp": row["amp"], "mode": mode, "measured": False}
    return forerun.predict(MODEL, row["device"], **request, optimizer="adamw" if mode == "training" else None)


def test_a_job_is_its_steps(found: Report) -> None:
    for row in found.data["levels"]["training"]["rows"]:
        steps = -(-1000 // row["batch"])
        assert row["epoch_h"]["high"] == pytest.approx(steps * row["latency_ms"]["high"] / 3.6e6)
        assert row["total_h"]["value"] == pytest.approx(3 * row["epoch_h"]["value"])
        assert row["total_kwh"]["low"] == pytest.approx(3 * steps * row["energy_j"]["low"] / 3.6e6)


def test_several_gpus_follow_the_law_of_data_parallelism(found: Report) -> None:
    level = found.data["levels"]["distributed"]
    for device in DEVICES:
        rows = [r for r in level["rows"] if r["device"] == device]
        assert [r["gpus"] for r in rows] == list(range(1, 9))
        answer = predicted(rows[0], "training")
        assert answer.latency_ms is not None
        size = data_parallel.gradient_mb(answer.parameters, "fp32")
        law = data_parallel.scaling(answer.latency_ms, size, forerun.load_device(device), range(1, 9))
        assert answer.host_ms is not None
        for row in rows[1:]:
            count, host = row["gpus"], answer.host_ms.value
            slow = data_parallel.in_one_process(answer.latency_ms, host, size, forerun.load_device(device), count)
            assert row["data_parallel_ms"]["value"] == pytest.approx(slow.value, rel=SAME)
            assert row["data_parallel_ms"]["value"] > row["step_ms"]["value"]
        for row, one in zip(rows, law, strict=True):
            assert row["step_ms"]["value"] == pytest.approx(one.step_ms.value, rel=SAME)
            assert row["step_ms"]["high"] == pytest.approx(one.step_ms.high, rel=SAME)
            assert row["efficiency"] == pytest.approx(one.efficiency, rel=SAME)
        assert level["worth"][device] == data_parallel.worth_adding(law, BATCH)


def test_adding_devices_stops_where_sums_take_over() -> None:
    """A step of 1 ms and 4 GB of gradients: two devices are slower than one."""
    step, slow = forerun.Estimate(1.0, 0.9, 1.2, "ms"), forerun.load_device("t4")
    assert data_parallel.worth_adding(data_parallel.scaling(step, 4096, slow, range(1, 9)), 32) == 1
    assert data_parallel.worth_adding(data_parallel.scaling(step, 1e-6, slow, range(1, 9)), 32) == 8


def test_clouds_are_listed_cheapest_first_at_the_price_of_predict(found: Report) -> None:
    level = found.data["levels"]["cloud"]
    once = {o["instance"]: o for o in level["no_longer_offered"]}  # what was priced of V100s when they were published
    assert once["p3.2xlarge"]["usd_per_hour"] == 3.06 and once["p3.2xlarge"]["retired"].startswith("2026-08-22")
    assert not {o["instance"] for o in level["training"]} & set(once)
    for offers in (level["training"], level["inference"]):
        costs = [o["cost_usd"]["value"] for o in offers]
        assert costs == sorted(costs) and {o["cloud"] for o in offers} == {"aws", "gcp", "azure"}
    for offer in level["training"][:5]:
        assert offer["cost_usd"]["value"] == pytest.approx(offer["hours"]["value"] * offer["usd_per_hour"])


def test_what_was_measured_is_shown_over_the_curves_and_not_in_their_place(found: Report) -> None:
    rows = found.data["levels"]["inference"]["rows"]
    known = [r for r in rows if r["measured"]]
    assert known and {r["device"] for r in known} == {"h200"}  # our rows are of that device
    assert any(r["measured"]["latency_ms"] != r["latency_ms"]["value"] for r in known)
    points = [t for c in embedded(found.html, "charts") for t in c["data"] if "measured" in t.get("name", "")]
    assert any(
        t["y"] == pytest.approx([r["measured"]["latency_ms"] for r in known[: len(t["y"])]], rel=1e-3) for t in points
    )
    assert all("measured" in text for t in points for text in t["text"])


def test_operators_are_those_of_explain_and_the_heaviest_is_varied(found: Report) -> None:
    level = found.data["levels"]["operators"]
    call = level["devices"]["h200"]["call"]
    explained = forerun.explain(MODEL, "h200", batch=BATCH, host="reference")
    assert call["device_ms"] == pytest.approx(explained.device_ms, rel=SAME)
    assert call["ops"]["time_ms"] == pytest.approx([o.time_ms for o in explained.ops], rel=SAME)
    varied = level["sensitivity"]["rows"]
    assert {r["axis"] for r in varied} == {"batch", "filters", "kernel size", "stride"}
    kernels = [r for r in varied if r["axis"] == "kernel size" and r["device"] == "v100-16gb"]
    for dtype in ("fp32", "fp16"):  # both precisions, side by side
        by_kernel = [r for r in kernels if r["dtype"] == dtype]
        assert by_kernel[0]["forward_ms"] < by_kernel[-1]["forward_ms"]
        assert all(r["backward_ms"] > r["forward_ms"] > 0 for r in by_kernel)
    assert "against kernel size, fp16" in found.html


def test_caches_deliver_no_less_than_the_level_below_and_streams_pass_through(found: Report) -> None:
    for device in DEVICES:
        data = found.data["levels"]["operators"]["devices"][device]
        ops = data["call"]["ops"]
        for memory, l2, l1, once in zip(
            ops["memory_level_mb"], ops["l2_level_mb"], ops["l1_level_mb"], ops["mb"], strict=True
        ):
            assert l1 >= l2 >= memory >= once * (1 - 1e-9)
        streams = [at for at, unit in enumerate(ops["unit"]) if unit == "vector"]
        assert streams and all(ops["l1_level_mb"][at] == ops["mb"][at] for at in streams)
        convolutions = [at for at, name in enumerate(ops["kernel"]) if name == "conv"]
        assert max(ops["l1_level_mb"][at] / ops["mb"][at] for at in convolutions) > 2
        share = data["levels"]["tensor_core_time_share"]
        assert share == pytest.approx(sum(s for s, on in zip(ops["share"], ops["tensor_cores"], strict=True) if on))
        # fp32 convolutions: TF32 on an H200, plain fp32 on a V100
        assert share > 0.1 if device == "h200" else share == 0
        assert "Locality is" in data["levels"]["verdict"] and data["levels"]["verdict"] in found.html
    assert "Hierarchical roofline" in found.html and "Bytes by level on NVIDIA H200" in found.html


def test_the_first_screen_says_what_bounds_the_model_and_what_to_change(found: Report) -> None:
    text = " ".join(found.summary)
    for device in DEVICES:
        assert f"{device}: a call takes" in text
    assert "It is device-bound" in text or "It is host-bound" in text
    assert "times the throughput" in text and "Cheapest for training" in text
    top = found.html.partition('id="operators"')[0]
    assert "What bounds this model" in top and "What to change" in top


def test_the_file_is_replaced_whole_and_refers_to_nothing_outside(found: Report, place: Path) -> None:
    html = place.read_text(encoding="utf-8")
    assert html == found.html and [p.name for p in place.parent.iterdir()] == ["report.html"]
    own = re.sub(
        r"<script>.*?</script>", "", html, flags=re.S
    )  # plotly names addresses of maps that no chart here uses
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:|//)|url\(|@import""", own)
    assert html.count("plotly.js v") == 1 and len(html) < 6e6


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_in_a_browser_with_no_network(found: Report, place: Path, width: int) -> None:
    if browser.find() is None:
        pytest.skip("no Chromium, Chrome or Playwright browser was found: the page was not opened")
    with browser.opened(place, width=width, dark=width == 390) as (page, complaints, requested):
        page.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
        charts = page.locator(".plot").count()
        assert charts >= 15
        assert (
            page.evaluate("[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg')).length")
            == charts
        )
        assert page.locator(".plot .scatterlayer .trace").count() > charts
        assert page.locator("#summary").is_visible()
        assert "What bounds this model" in page.locator("#summary").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out on a phone
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(255, 255, 255)") == (width == 1280)  # the other one is dark
        assert complaints == []
        assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_training_level_has_device_use_memory_rate_and_loading(found: Report) -> None:
    rows = found.data["levels"]["training"]["rows"]
    for row in rows:
        bandwidth = forerun.load_device(row["device"]).bandwidth_gbs
        assert 0 < row["busy"] <= 1 and 0 < row["memory_gbs"] < (bandwidth or 0) and row["loading_waits"] is None
    slow = forerun.make_report(
        "cnn:depth=2,filters=8,classes=10", "t4", batch=8, dataset_size=8192, epochs=1, loading_samples_per_s=1024
    )
    for row in slow.data["levels"]["training"]["rows"]:
        # 8,192 samples at 1,024 a second
        assert row["epoch_h"]["value"] == pytest.approx(8 / 3600) and row["loading_waits"] > 0.5
    assert "data loading delivers 1,024 samples per second" in slow.html and "waits" in slow.html


def test_what_is_measured_here_is_beside_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    here = forerun.load_device("xeon-emr-2vcpu")
    monkeypatch.setattr(machine, "this_device", lambda: here)
    kept = {
        "ceilings": 1, "measured_at": "2026-01-01T00:00:00+00:00", "device": {"name": here.name, "kind": "cpu"},
        "peaks": {"fp32": {"burst_tflops": 0.1}}, "bandwidth": {"memory_gbs": 17.5},
    }  # fmt: skip
    monkeypatch.setattr(saved_ceilings, "saved", lambda name: Ceilings(kept))
    monkeypatch.setattr(short_run, "LOADING_S", 0.05)
    monkeypatch.setattr(short_run.short_run, "__defaults__", ("cpu", 3, 0.05))
    made = forerun.make_report(
        "cnn:depth=1,filters=4,classes=10", ["xeon-emr-2vcpu", "t4"], batch=4, measured=True, dataset_size=100, epochs=1
    )
    run = made.data["levels"]["measured"]
    assert [e["epoch"] for e in run["epochs"]] == [1, 2, 3] and run["step_ms"] > 0 and run["loading_samples_per_s"] > 0
    assert run["epochs"][-1]["loss"] < run["epochs"][0]["loss"]  # one batch, by heart
    assert (
        run["ceilings"]["measured_bandwidth_gbs"] == 17.5 and "a CPU launches no kernels" in run["reasons"]["kernels"]
    )
    assert "a training step of fp32 at batch 4 takes" in made.html and "Loss of the short run" in made.html
    with pytest.raises(
        ForerunError, match=r"--measured measures t4 or h200 where it is, and this machine has .*there$"
    ):
        forerun.make_report(MODEL, ["t4", "h200"], measured=True)


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x128x8", False),
        ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32", True),
        ("sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_32x3_nn_align4>", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nt_align1>", False),
        ("nvjet_sm90_hsh_128x256_64x4_1x2_h_bz_TNT", True),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", True),
        ("void implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1, true>", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", False),
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>", False),
    ],
)
def test_kernels_on_tensor_cores_are_known_by_their_names(name: str, on: bool) -> None:
    assert tensor_kernels.on_tensor_cores(name) is on


# -- what users write ------------------------------------------------------------------------------------------------


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    module = nn.Sequential()
    module.add_module("<script>alert(3)</script>", nn.Conv2d(3, 4, 3))
    chip = tmp_path / "chip.yaml"
    chip.write_text(f"base: t4\nid: chip\nname: {json.dumps(EVIL)}\n")
    made = forerun.make_report(module, [chip], batch=2, input_shape=(3, 16, 16))
    for tag in ("<script>alert", "<img", "onerror=alert(2)>"):
        assert tag not in made.html
    assert embedded(made.html)["levels"]["operators"]["devices"]
    assert "&lt;img src=x" in made.html


def test_a_model_that_cannot_be_trained_has_the_other_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = summary.changes
    monkeypatch.setattr(summary, "changes", lambda study, d, mode: changes(study, d, mode) if d.id == "t4" else [])
    made = forerun.make_report(nn.MaxPool2d(2), ["t4", "l4"], batch=2, input_shape=(3, 16, 16))
    # each device has a line
    assert "l4: none of the changes that were tried is sure to make it faster." in made.summary
    levels = made.data["levels"]
    assert "nothing to train" in levels["training"]["refused"]
    assert levels["inference"]["rows"] and levels["cloud"]["inference"] and not levels["cloud"]["training"]
    assert "Training is not predicted" in made.html


def test_a_language_model_is_served_too(found: Report) -> None:
    devices = ["h100-sxm", "l4", "xeon-emr-2vcpu"]
    level = serving(Study(
        "Qwen/Qwen2.5-0.5B", [forerun.load_device(name) for name in devices], 1, Precision("bf16"), "inference",
        "adamw", Job(1000, 1),
    ))  # fmt: skip
    assert level is not None
    plan = forerun.recommend("Qwen/Qwen2.5-0.5B", devices=devices).to_dict()
    assert level.data["rows"] == json.loads(json.dumps(plan["rows"]))
    assert {row["device"] for row in level.data["rows"]} == {"h100-sxm", "l4"}
    assert any("xeon-emr-2vcpu is left out" in line for line in level.findings)
    assert level.data["rows"][0]["launch"] in level.findings[0] and len(level.tables[0].rows) == 2
    assert "serving" not in found.data["levels"]  # a U-Net has no such level


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": []}, "devices must not be empty"), ({"mode": "training"}, "always has training"),
        ({"epochs": 0}, "epochs must be a whole number"), ({"dataset_size": 1.5}, "dataset_size must be"),
        ({"optimizer": "adagrad"}, "optimizer 'adagrad' is not known"), ({"model": "resnet5O"}, "no model is called"),
        ({"output": "no/such/folder/x.html"}, "there is no folder no/such/folder"), ({"output": "."}, "is a folder"),
        ({"loading_samples_per_s": 0}, "loading_samples_per_s must be"),
        ({"bacth": 4}, "'bacth' is not a setting of a workload. Did you mean batch, cache?"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"model": MODEL, "devices": ["t4"], **change}
    with pytest.raises(ForerunError) as caught:
        forerun.make_report(settings.pop("model"), settings.pop("devices"), **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_plotly_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(
        ForerunError, match=r"needs plotly, which is not installed; .*: pip install 'forerun\[report\]'"
    ):
        forerun.make_report(MODEL, "t4")


def test_the_command_writes_the_file(run_forerun: Run, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nprint('loaded')\n"
        "class Net(nn.Conv2d):\n    def __init__(self): super().__init__(3, 4, 3)\n"
    )
    words = ("report", "net.py:Net", "--input-shape", "3,16,16", "-d", "t4,l4", "-b", "2", "-o", "out.html")
    done = run_forerun(*words)
    assert done.returncode == 0, done.stderr
    assert "t4: a call takes" in done.stdout and "The report is in out.html" in done.stdout
    assert embedded((tmp_path / "out.html").read_text())["model"] == "Net"
    done = run_forerun(*words[:-1], str(tmp_path))
    assert done.returncode == 2 and "is a folder" in done.stderr and "Traceback" not in done.stderr
