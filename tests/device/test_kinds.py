"""Kinds of device are objects: those of forerun, and one that a package brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import forerun
from forerun.device import kinds, load_device
from forerun.errors import ForerunError

MODEL = "cnn:depth=2,filters=16,classes=10"
PACKAGE = """
from forerun.device.kinds import DeviceKind

NPU = DeviceKind("npu", whole_programs=True, launch=(0.0, 400.0, 0.5), context_mb=64.0)
"""
SHEET = """
name: My NPU
kind: npu
datasheet: {memory_gb: 32, bandwidth_gbs: 400, fp16_tflops: 100, fp32_tflops: 25, tdp_w: 75}
"""


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    about = tmp_path / "site" / "acme_npu-1.0.dist-info"
    about.mkdir(parents=True)
    (tmp_path / "site" / "acme_npu.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-npu\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[forerun.device_kinds]\nnpu = acme_npu:NPU\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    kinds._of_packages.cache_clear()
    sheet = tmp_path / "npu.yaml"
    sheet.write_text(SHEET)
    yield sheet
    kinds._of_packages.cache_clear()


def test_a_kind_of_a_package_is_answered_by_what_it_says(npu: Path) -> None:
    answer = forerun.predict(MODEL, str(npu))
    assert answer.basis == "roofline" and answer.memory_parts_mb["context"] == 64.0
    assert answer.host_ms is not None and answer.host_ms.value == pytest.approx(0.4)
    assert load_device(str(npu)).usable_mb == pytest.approx(0.96 * 32 * 1024)
    with pytest.raises(ForerunError, match="is a npu, which has no CUDA graphs"):
        forerun.predict(MODEL, str(npu), runtime="cudagraph")


def test_a_kind_that_nobody_brings_is_refused(tmp_path: Path) -> None:
    kinds._of_packages.cache_clear()
    sheet = tmp_path / "npu.yaml"
    sheet.write_text(SHEET)
    with pytest.raises(ForerunError, match="kind must be one of gpu, cpu, tpu, asic, soc"):
        load_device(str(sheet))


def test_whose_rows_stand_for_a_kind() -> None:
    assert [kinds.part_of(name) for name in kinds.BUILT_IN] == ["gpu", "cpu", "gpu", "gpu", "gpu"]
    assert [kinds.read_by(meter).name for meter in ("cpu", "cuda", "xpu", None)] == ["cpu", "gpu", "gpu", "gpu"]
