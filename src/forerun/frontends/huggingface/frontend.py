"""Frontend: Hugging Face models from a config: an id, a dict, a config.json, a folder.

Ids of the built-in catalogue need no network. A config is data: code that ships beside it runs only if the user
allows it (`trust_remote_code=True`).
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path
from typing import Any

from forerun._util.installed import version
from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, first_line
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface import data as hf_data
from forerun.frontends.huggingface import quantised as hf_quantised
from forerun.frontends.huggingface.config import load_config, offline_config, plain_config
from forerun.frontends.huggingface.sizes import preprocessor_of
from forerun.graph.ir import Graph
from forerun.workload import Workload

#: What building and capturing any model imports, beside the module of its own architecture.
_IMPORTED_BY_ALL = (
    "forerun.frontends.huggingface.graphs",
    "forerun.capture.capture",
    "transformers.models.auto.modeling_auto",
    "transformers.modeling_utils",
    "transformers.cache_utils",
)


class HuggingFaceFrontend(Frontend):
    """A Hugging Face model. It takes whatever looks like an id, so only bare names are asked for later."""

    takes = "a Hugging Face id, config, config.json or folder"
    priority = 20
    suffixes = (".json",)
    reads_images = True

    def matches(self, model: Any) -> bool:
        if isinstance(model, dict):
            return "model_type" in model
        if not isinstance(model, (str, Path)):
            return False
        path = Path(model)
        if hf_catalog.architecture(str(model)) is not None or path.name == "config.json":
            return True
        if self.claims(model) or path.exists():
            return path.is_dir() and (path / "config.json").is_file()
        organisation, slash, name = str(model).partition("/")
        return bool(slash and name) and "/" not in name and organisation not in ("timm", "torchvision", ".", "")

    def untrusted(self, model: Any) -> bool:
        return isinstance(model, dict) or hf_catalog.architecture(str(model)) is None

    def key(self, model: Any, workload: Workload) -> dict[str, Any] | None:
        config = offline_config(model)
        if config is None:
            return None
        if not workload.weight_format:  # the same graph, whatever the dtype of the checkpoint's weights
            config = hf_quantised.without_quantisation(config)
        key: dict[str, Any] = {"config": config, "transformers": version("transformers"), "torch": version("torch")}
        if not _is_plain_text(config) or "quantization_config" in config:
            key["preprocessor"] = preprocessor_of(model)
        return key

    def published(self, model: Any) -> str | None:
        try:
            return hf_quantised.published_in(plain_config(model))
        except ForerunError:
            return None

    def names(self) -> list[str]:
        return hf_catalog.known_names()

    def knows(self, name: str) -> bool:
        return hf_catalog.architecture(name) is not None

    def title(self, model: Any) -> str:
        return str(model) if isinstance(model, (str, Path)) else str(model["model_type"])

    def warm_up(self) -> None:
        from forerun.capture import torch_compat

        torch_compat.prepare()
        for module in _IMPORTED_BY_ALL:
            import_module(module)

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.capture import torch_compat
        from forerun.frontends.huggingface.graphs import captured

        torch_compat.prepare()
        name = self.title(model)
        config = load_config(model, workload.trust_remote_code)
        offline = self.untrusted(model) and not workload.trust_remote_code
        try:
            with hf_data.without_the_hub() if offline else contextlib.nullcontext():
                return captured(model, config, workload, name)
        except ForerunError:
            raise
        except Exception as e:  # a config is untrusted text, and any error in transformers is due to it
            raise ForerunError(f"{name} cannot be built from its config: {first_line(e)}") from e


def _is_plain_text(config: dict[str, Any]) -> bool:
    """Whether a config is surely that of a text model; checked without transformers, whose import takes seconds."""
    other = ("vision_config", "audio_config", "image_size", "patch_size", "num_mel_bins", "conv_dim", "num_channels")
    return "vocab_size" in config and not any(field in config for field in other)
