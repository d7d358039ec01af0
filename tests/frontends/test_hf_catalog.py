"""The built-in Hugging Face catalogue: complete, free of duplicates, and true (a sample is rebuilt and counted)."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface.catalog import TASKS, architecture, architecture_ids, known_names

# What says nothing about how a model runs; two entries that differ only here are one architecture.
NOT_STRUCTURE = {"architectures", "torch_dtype", "rms_norm_eps", "layer_norm_eps", "pad_token_id"}

EVERYDAY = """
    bert-base-uncased bert-base-cased bert-large-uncased bert-base-multilingual-cased prajjwal1/bert-tiny
    prajjwal1/bert-mini prajjwal1/bert-small prajjwal1/bert-medium roberta-base roberta-large distilroberta-base
    xlm-roberta-base xlm-roberta-large distilbert-base-uncased distilbert-base-multilingual-cased
    microsoft/deberta-v3-xsmall microsoft/deberta-v3-small microsoft/deberta-v3-base microsoft/deberta-v3-large
    google/electra-small-discriminator google/electra-base-discriminator google/electra-large-discriminator
    albert-base-v1 albert-base-v2 albert-large-v2 albert-xlarge-v2 albert-xxlarge-v2 microsoft/mpnet-base
    sentence-transformers/all-MiniLM-L6-v2 sentence-transformers/all-MiniLM-L12-v2 BAAI/bge-small-en-v1.5
    BAAI/bge-base-en-v1.5 BAAI/bge-large-en-v1.5 BAAI/bge-m3 intfloat/e5-base-v2 intfloat/multilingual-e5-large
    thenlper/gte-large answerdotai/ModernBERT-base answerdotai/ModernBERT-large
    google/vit-base-patch16-224 google/vit-large-patch16-224 google/vit-huge-patch14-224-in21k
    WinKawaks/vit-tiny-patch16-224 facebook/deit-base-distilled-patch16-224 microsoft/beit-base-patch16-224
    microsoft/swin-tiny-patch4-window7-224 facebook/dinov2-base openai/clip-vit-base-patch32
    openai/clip-vit-base-patch16 openai/clip-vit-large-patch14 google/siglip-base-patch16-224
    openai/whisper-tiny openai/whisper-base openai/whisper-small openai/whisper-medium openai/whisper-large-v2
    openai/whisper-large-v3 openai/whisper-large-v3-turbo facebook/wav2vec2-base facebook/wav2vec2-large-960h
    facebook/hubert-base-ls960 t5-small t5-base t5-large t5-3b t5-11b google/flan-t5-base google/flan-t5-xxl
    google/mt5-base facebook/bart-base facebook/bart-large facebook/bart-large-cnn google/pegasus-xsum
    microsoft/phi-1 microsoft/phi-1_5 microsoft/phi-2 microsoft/Phi-3-mini-4k-instruct
    microsoft/Phi-3-medium-4k-instruct microsoft/Phi-3.5-mini-instruct microsoft/phi-4 microsoft/Phi-4-mini-instruct
    google/gemma-2b google/gemma-7b google/gemma-2-2b google/gemma-2-9b google/gemma-2-27b google/gemma-3-1b-it
    google/gemma-3-4b-it google/gemma-3-12b-it google/gemma-3-27b-it Qwen/Qwen1.5-7B Qwen/Qwen1.5-MoE-A2.7B
    Qwen/Qwen2-7B Qwen/Qwen2.5-0.5B Qwen/Qwen2.5-1.5B Qwen/Qwen2.5-3B Qwen/Qwen2.5-7B Qwen/Qwen2.5-14B
    Qwen/Qwen2.5-32B Qwen/Qwen2.5-72B Qwen/Qwen2.5-Coder-32B-Instruct Qwen/Qwen3-0.6B Qwen/Qwen3-1.7B Qwen/Qwen3-4B
    Qwen/Qwen3-8B Qwen/Qwen3-14B Qwen/Qwen3-32B Qwen/Qwen3-30B-A3B Qwen/Qwen3-235B-A22B
    Qwen/Qwen3-Next-80B-A3B-Instruct mistralai/Mistral-7B-v0.1 mistralai/Mistral-7B-Instruct-v0.2
    mistralai/Mistral-7B-v0.3 mistralai/Mistral-Nemo-Base-2407 mistralai/Mistral-Small-24B-Base-2501
    mistralai/Mixtral-8x7B-v0.1 mistralai/Mixtral-8x22B-v0.1 allenai/OLMo-7B-hf allenai/OLMo-2-1124-7B
    allenai/OLMoE-1B-7B-0924 deepseek-ai/DeepSeek-V2 deepseek-ai/DeepSeek-V2-Lite deepseek-ai/DeepSeek-V3
    deepseek-ai/DeepSeek-R1 deepseek-ai/DeepSeek-R1-Distill-Llama-8B deepseek-ai/DeepSeek-R1-Distill-Qwen-7B
    openai/gpt-oss-20b openai/gpt-oss-120b huggyllama/llama-7b huggyllama/llama-65b meta-llama/Llama-2-7b-hf
    meta-llama/Llama-2-13b-hf meta-llama/Llama-2-70b-hf meta-llama/Meta-Llama-3-8B meta-llama/Llama-3.1-8B
    meta-llama/Llama-3.1-70B meta-llama/Llama-3.1-405B meta-llama/Llama-3.2-1B meta-llama/Llama-3.2-3B
    meta-llama/Llama-3.3-70B-Instruct meta-llama/Llama-4-Scout-17B-16E meta-llama/Llama-4-Maverick-17B-128E
    TinyLlama/TinyLlama-1.1B-Chat-v1.0 HuggingFaceTB/SmolLM-135M HuggingFaceTB/SmolLM2-1.7B HuggingFaceTB/SmolLM3-3B
    tiiuae/falcon-7b tiiuae/falcon-40b tiiuae/falcon-180B tiiuae/Falcon3-7B-Base mosaicml/mpt-7b mosaicml/mpt-30b
    bigscience/bloom bigscience/bloom-560m bigscience/bloom-7b1 facebook/opt-125m facebook/opt-350m facebook/opt-66b
    gpt2 gpt2-medium gpt2-large gpt2-xl distilgpt2 EleutherAI/gpt-j-6b EleutherAI/gpt-neo-2.7B
    EleutherAI/gpt-neox-20b EleutherAI/pythia-14m EleutherAI/pythia-12b bigcode/starcoder bigcode/santacoder
    bigcode/starcoder2-15b codellama/CodeLlama-7b-hf codellama/CodeLlama-34b-hf stabilityai/stablelm-2-1_6b
    01-ai/Yi-6B 01-ai/Yi-34B ibm-granite/granite-3.1-8b-base CohereForAI/c4ai-command-r-v01 THUDM/glm-4-9b-chat-hf
    state-spaces/mamba-130m-hf mistralai/Mamba-Codestral-7B-v0.1 RWKV/rwkv-4-169m-pile ai21labs/Jamba-v0.1
    lmsys/vicuna-7b-v1.5
"""

# Published counts, written out a second time so that a slip in the data files shows.
REBUILT = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "openai/gpt-oss-20b": 20_914_757_184,
    # 671,026,419,200 in the checkpoint without its MTP layer, less 58 x 256 router biases that are buffers here
    "deepseek-ai/DeepSeek-V3": 671_026_404_352,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "google/gemma-3-1b-it": 999_885_952,
    "bert-base-uncased": 109_482_240,
    "google/flan-t5-base": 222_903_552,
    "openai/clip-vit-base-patch32": 151_277_313,
    "openai/whisper-large-v3": 1_543_490_560,
    "facebook/dinov2-base": 86_580_480,
    "microsoft/deberta-v3-base": 183_831_552,
    "state-spaces/mamba-130m-hf": 129_135_360,
}


def test_every_entry_has_all_its_fields() -> None:
    for name in architecture_ids():
        entry = architecture(name)
        assert entry is not None
        assert entry.id == name
        assert entry.task in TASKS
        assert entry.source
        assert entry.date
        assert entry.parameters is None or entry.parameters > 100_000
        assert {"model_type", "architectures", "torch_dtype"} <= entry.config.keys()


def test_names_and_configs_are_unique() -> None:
    names = [name.lower() for name in known_names()]
    assert sorted(names) == sorted(set(names))
    by_config: dict[str, str] = {}
    for name in architecture_ids():
        entry = architecture(name)
        assert entry is not None
        structure = json.dumps({k: v for k, v in entry.config.items() if k not in NOT_STRUCTURE}, sort_keys=True)
        assert structure not in by_config, f"{name} is {by_config[structure]} again: make it an alias"
        by_config[structure] = name
    assert len(by_config) >= 674


def test_everyday_models_are_there() -> None:
    assert [name for name in EVERYDAY.split() if architecture(name) is None] == []


def test_lookup_is_exact_but_forgives_case_and_owner() -> None:
    llama = architecture("meta-llama/Llama-3.1-8B")
    assert architecture("llama-3.1-8b") == llama
    assert architecture("META-LLAMA/Meta-Llama-3.1-8B-Instruct") == llama
    assert architecture("google-bert/bert-base-uncased") == architecture("bert-base-uncased")
    assert architecture("llama") is None
    assert architecture("Llama-3.1") is None
    assert architecture("") is None
    # An id without an owner is not the other owner's model of that name.
    assert architecture("bert-base-german-cased") != architecture("dbmdz/bert-base-german-cased")


def test_a_caller_cannot_spoil_the_catalogue() -> None:
    spoiled = architecture("gpt2")
    assert spoiled is not None
    spoiled.config.clear()
    assert architecture("gpt2") != spoiled


def test_a_bare_name_of_two_architectures_matches_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (architecture(name) for name in ("gpt2", "gpt2-xl"))
    for entry, owner in ((first, "one"), (second, "two")):
        object.__setattr__(entry, "id", f"{owner}/model")
        object.__setattr__(entry, "aliases", ())
    monkeypatch.setattr(hf_catalog, "_entries", lambda: (first, second))
    monkeypatch.setattr(hf_catalog, "_occurs", lambda key: True)  # whether the files have a name
    hf_catalog._names.cache_clear()
    try:
        assert architecture("model") is None
        assert architecture("one/model") == first
        assert architecture("two/model") == second
    finally:
        hf_catalog._names.cache_clear()


def test_loading_is_light() -> None:
    code = (
        "import sys, forerun.frontends.huggingface.catalog as c; c.known_names();"
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    hf_catalog._entries.cache_clear()
    hf_catalog._names.cache_clear()
    start = time.perf_counter()
    known_names()
    assert time.perf_counter() - start < 0.2  # a few ms in truth; the slack is for a busy machine


def test_transformers_knows_every_model_type() -> None:
    pytest.importorskip("transformers")
    from forerun.capture.torch_compat import prepare

    prepare()
    from transformers import CONFIG_MAPPING

    types = {entry.config["model_type"] for name in architecture_ids() if (entry := architecture(name))}
    assert types - set(CONFIG_MAPPING.keys()) == set()


@pytest.mark.parametrize("name", REBUILT)
def test_rebuilt_model_has_the_published_parameters(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from forerun.capture.torch_compat import prepare

    prepare()
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    entry = architecture(name)
    assert entry is not None
    assert entry.parameters == REBUILT[name]
    factory = AutoModelForCausalLM if entry.task == "causal-lm" else AutoModel
    with torch.device("meta"):
        model = factory.from_config(AutoConfig.for_model(**entry.config))
    assert sum(p.numel() for p in model.parameters()) == REBUILT[name]
