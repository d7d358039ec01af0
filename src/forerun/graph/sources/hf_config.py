"""The config of a Hugging Face model: from a dict, a file, a folder, the built-in catalogue, or the hub."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from forerun import documents
from forerun.errors import ForerunError, did_you_mean
from forerun.graph.sources import hf_catalog
from forerun.graph.sources.door import first_line, one_line
from forerun.graph.sources.hf_checks import checked
from forerun.readable import short

#: Seconds the hub may take to say whether it has a model.
HUB_TIMEOUT_S = 5


def offline_config(model: Any) -> dict[str, Any] | None:
    """The config as plain data, when it can be had without the network."""
    if isinstance(model, dict):
        return model
    known = hf_catalog.architecture(str(model))
    if known is not None:
        return known.config
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if path.name != "config.json":
        return None
    config = documents.read_json(path)
    if not isinstance(config, dict) or "model_type" not in config:
        raise ForerunError(f"{path} is not a Hugging Face config: it has no model_type")
    checked(config, str(path))
    return config


def load_config(model: Any, trust_remote_code: bool) -> Any:
    """The transformers config of whatever names a Hugging Face model."""
    from transformers import CONFIG_MAPPING, AutoConfig

    data = offline_config(model)
    if data is None:
        return _config_from_hub(str(model), trust_remote_code)
    data = checked(data, str(model) if not isinstance(model, dict) else "the config")
    kind = data.pop("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        hint = did_you_mean(kind, CONFIG_MAPPING.keys()) if isinstance(kind, str) else ""
        raise ForerunError(f"transformers {version('transformers')} knows no model_type {short(kind)}.{hint}")
    try:
        return AutoConfig.for_model(kind, **data)
    except Exception as e:
        raise ForerunError(f"the {kind} config is not valid: {one_line(e)}") from e


def _config_from_hub(name: str, trust_remote_code: bool) -> Any:
    """The config of an id beyond the catalogue: from the hub's local cache, else from the hub when it has it."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception:  # noqa: BLE001 - whatever is wrong with the local copy, the hub is asked next
        reason = _refusal(name)
    if reason is None:
        try:
            return AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        except Exception as e:  # noqa: BLE001 - the hub client raises many kinds of error
            reason = first_line(e)
    hint = did_you_mean(name, hf_catalog.known_names()) or " Pass its config.json instead."
    raise ForerunError(
        f"{name} is not in the built-in catalogue, and the Hugging Face hub did not give it: {reason}.{hint}"
    )


def _refusal(name: str) -> str | None:
    """Why the hub will not give a model's config, or None. One request of the hub's own client, which knows proxies,
    tokens and offline mode; its downloads would try for half a minute before they give up."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_TIMEOUT_S)
    except errors.OfflineModeIsEnabled:
        return "the hub's client is in offline mode (HF_HUB_OFFLINE)"
    except errors.GatedRepoError:
        return "one must ask its owner for access and log in"
    except errors.RepositoryNotFoundError:
        return "it has no such model, or shows it only to those who log in"
    except errors.EntryNotFoundError:
        return "it has no config.json of it"
    except (errors.HfHubHTTPError, errors.HFValidationError) as e:
        return first_line(e)
    except Exception:  # noqa: BLE001 - whatever the HTTP library raises without a connection
        return "it cannot be reached from here"
    return None
