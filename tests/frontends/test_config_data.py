"""A config is data: no kernel, code or checkpoint that it names is loaded, by the command or by a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import warm
from web_server import Served

from forerun.errors import ForerunError
from forerun.frontends.huggingface.data import data_only, notes

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100}  # fmt: skip
#: What stands in for the library that loads kernels of the hub: it leaves a file behind when it is asked for one.
KERNELS = """
import pathlib
class _Any:
    def __init__(self, *a, **k): pass
    def __class_getitem__(cls, _): return cls
    INFERENCE = TRAINING = TORCH_COMPILE = None
CUDAProperties = Device = KernelizeFallback = LayerRepository = LocalLayerRepository = Mode = ROCMProperties = _Any
def get_kernel(*a, **k):
    (pathlib.Path(__file__).parent / "loaded").touch()
    raise ValueError("a kernel was loaded")
def kernelize(model, *a, **k): return model
def register_kernel_mapping(*a, **k): pass
def replace_kernel_forward_from_hub(*a, **k): pass
def use_kernel_mapping(*a, **k): return __import__("contextlib").nullcontext()
def use_kernel_forward_from_hub(*a, **k): return lambda cls: cls
def use_kernelized_func(*a, **k): return lambda cls: cls
"""
ATTACKS: dict[str, dict[str, Any]] = {
    "a kernel of the hub": {**LLAMA, "_attn_implementation": "evil/kernel"},
    "the same by its public name": {**LLAMA, "attn_implementation": "evil/kernel@main:run"},
    "the same inside": {**LLAMA, "_attn_implementation_internal": "kernels-community/evil"},
    "flash attention": {**LLAMA, "_attn_implementation": "flash_attention_2"},
    "kernels by part": {**LLAMA, "attn_implementation": {"": "evil/kernel", "text_config": "evil/kernel"}},
    "experts": {**LLAMA, "_experts_implementation": "evil/kernel", "experts_implementation": "sonicmoe"},
    "code beside it": {**LLAMA, "auto_map": {"AutoModelForCausalLM": "evil/repo--modeling.Model"}},
    "a backbone of the hub": {"model_type": "detr", "backbone": "evil/repo", "use_timm_backbone": False},
    "a backbone of timm, from the hub": {"model_type": "timm_backbone", "backbone": "hf-hub:evil/repo"},
    "a network in a local folder": {"model_type": "timm_wrapper", "architecture": "local-dir:/etc"},
}


def test_only_data_is_left() -> None:
    config = {**LLAMA, "_attn_implementation": "evil/kernel", "auto_map": {"AutoModel": "evil--m.M"},
              "_commit_hash": "x",
              "text_config": {"attn_implementation": "flash_attention_3", "hidden_size": 8, "_name_or_path": "/etc"},
              "experts_implementation": "evil", "use_kernels": True, "kernel_config": {"a": "b"}, "kernel_size": 3,
              "conv_kernel": [3], "quantization_config": {"quant_method": "mxfp4"}}  # fmt: skip
    kept = data_only(config)
    assert kept == {**LLAMA, "text_config": {"hidden_size": 8}, "kernel_size": 3, "conv_kernel": [3]}
    assert data_only({"_attn_implementation": "eager"}) == {"attn_implementation": "eager"}
    trusted = data_only(config, trust_remote_code=True)
    assert trusted == {key: value for key, value in config.items() if key != "quantization_config"}


def test_the_kernel_that_is_priced_is_named() -> None:
    (said,) = notes({**LLAMA, "_attn_implementation": "flash_attention_2"})
    assert said.startswith("the config requests 'flash_attention_2' attention: predicted is PyTorch's scaled_dot")
    assert notes({**LLAMA, "_attn_implementation": "sdpa"}) == []


@pytest.mark.parametrize("name", ["evil/repo", "hf-hub:evil/repo", "local-dir:/etc", "..\\x"])
def test_a_network_that_would_be_downloaded_is_refused(name: str) -> None:
    with pytest.raises(ForerunError, match="would be downloaded: give its settings as backbone_config"):
        data_only({"model_type": "detr", "backbone": name})
    known = data_only({"model_type": "dpt", "backbone": "facebook/dinov2-small"})
    assert known["backbone_config"]["model_type"] == "dinov2"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as pip would install it."""
    site = tmp_path_factory.mktemp("site")
    about = site / "kernels-0.17.5.dist-info"
    for folder in (kernels := site / "kernels", about):
        folder.mkdir()
    (kernels / "__init__.py").write_text(KERNELS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.17.5\n")
    return kernels


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_command_loads_nothing(attack: str, kernels: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(ATTACKS[attack]))
    path = os.pathsep.join([str(kernels.parent), os.environ.get("PYTHONPATH", "")])
    # transformers looks for the library when it is imported: it must lie there from the start.
    command, env = ["-m", "forerun", "predict", str(config), "--device", "l4"], {**os.environ, "PYTHONPATH": path}
    done = warm.run(command, cwd=tmp_path, env=env, of_the_start=["PYTHONPATH"])
    assert not (kernels / "loaded").exists()
    assert "Traceback" not in done.stderr
    if ATTACKS[attack]["model_type"] == "llama":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_server_answers_or_refuses_with_a_sentence(attack: str, served: Served) -> None:
    found = served.ask("/v1/uploads", raw=json.dumps(ATTACKS[attack]).encode(), X_File_Name="config.json")
    if found.status == 201:
        found = served.ask("/v1/predict", {"model": found.body["model"], "device": "l4"})
    assert found.status == 200 or 400 <= found.status < 500, found.body
    if found.status != 200:
        assert "\n" not in found.body["error"] and "Traceback" not in found.body["error"]
    elif "flash" in attack:
        assert any("predicted is PyTorch's scaled_dot_product_attention" in note for note in found.body["notes"])
