"""The config of a Hugging Face model: from a dict, a file, a folder, the built-in catalogue, or the hub."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path
from typing import Any

from forerun._util import documents
from forerun._util.installed import version
from forerun._util.readable import short
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends.base import first_line, one_line
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.frontends.huggingface.checks import checked
from forerun.frontends.huggingface.data import data_only, without_the_hub

#: Seconds the hub may take to say whether it has a model.
HUB_TIMEOUT_S = 5
#: Seconds for which a refusal of the hub is cached: one request needs a config more than once.
_REFUSED_S = 60


def offline_config(model: Any) -> dict[str, Any] | None:
    """The config as plain data, when it is available offline."""
    if isinstance(model, dict):
        return model
    known = hf_catalog.architecture(str(model))
    if known is not None:
        return known.config
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if path.name != "config.json":
        return None
    return _read(path, str(path))


def plain_config(model: Any) -> dict[str, Any]:
    """The config as plain data: of an id beyond the catalogue from the hub's local cache, else from the hub."""
    config = offline_config(model)
    return config if config is not None else _read(_from_hub(str(model)), str(model))


def _read(path: Path, where: str) -> dict[str, Any]:
    config = documents.read_json(path)
    if not isinstance(config, dict) or "model_type" not in config:
        raise ForerunError(f"{where} is not a Hugging Face config: it has no model_type")
    checked(config, where)
    return config


def load_config(model: Any, trust_remote_code: bool) -> Any:
    """The transformers config of a Hugging Face model given by any name or path, from its data alone.

    Custom config classes need code that the user trusts (`trust_remote_code`).
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    if trust_remote_code and offline_config(model) is None:
        return _config_by_its_code(str(model))
    data = data_only(plain_config(model), trust_remote_code)
    data = checked(data, str(model) if not isinstance(model, dict) else "the config")
    kind = data.pop("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        hint = did_you_mean(kind, CONFIG_MAPPING.keys()) if isinstance(kind, str) else ""
        raise ForerunError(f"transformers {version('transformers')} knows no model_type {short(kind)}.{hint}")
    try:
        with without_the_hub() if hf_catalog.architecture(str(model)) is None else contextlib.nullcontext():
            return AutoConfig.for_model(kind, **data)
    except Exception as e:
        raise ForerunError(f"the {kind} config is not valid: {one_line(e)}") from e


def _config_by_its_code(name: str) -> Any:
    """The config of an id whose own code the user trusts."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=True)
    except Exception:  # noqa: BLE001 - whatever is wrong with the local copy, the hub is tried next
        _from_hub(name)
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=True)
    except Exception as e:  # noqa: BLE001 - the hub client raises many kinds of error
        raise _not_given(name, first_line(e)) from None


def _from_hub(name: str) -> Path:
    """The config.json of an id beyond the catalogue, in the hub's local cache."""
    path = _local(name)
    if path is None:
        reason = _refusal(name, int(time.monotonic() // _REFUSED_S))
        if reason is not None:
            raise _not_given(name, reason)
        path = _downloaded(name)
    return path


def _local(name: str) -> Path | None:
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        path = try_to_load_from_cache(name, "config.json")
    except errors.HFValidationError:  # the hub says why, in words for users
        return None
    return Path(path) if isinstance(path, str) else None


def _downloaded(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(name, "config.json"))
    except Exception as e:  # noqa: BLE001 - the hub client raises many kinds of error
        raise _not_given(name, first_line(e)) from None


def _not_given(name: str, reason: str) -> ForerunError:
    hint = did_you_mean(name, hf_catalog.known_names()) or " Pass its config.json instead."
    return ForerunError(
        f"{name} is not in the built-in catalogue, and the Hugging Face hub did not provide it: {reason}.{hint}"
    )


@functools.lru_cache(maxsize=64)
def _refusal(name: str, minute: int) -> str | None:
    """Why the hub does not provide a model's config, or None. One request of the hub's own client, which knows proxies,
    tokens and offline mode; its downloads would try for half a minute before they give up. The result is cached for a
    `minute`."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_TIMEOUT_S)
    except errors.OfflineModeIsEnabled:
        return "the hub's client is in offline mode (HF_HUB_OFFLINE)"
    except errors.GatedRepoError:
        return "access must be requested from its owner, and a login is needed"
    except errors.RepositoryNotFoundError:
        return "it has no such model, or shows it only after login"
    except errors.EntryNotFoundError:
        return "it has no config.json of it"
    except (errors.HfHubHTTPError, errors.HFValidationError) as e:
        return first_line(e)
    except Exception:  # noqa: BLE001 - whatever the HTTP library raises without a connection
        return "it cannot be reached from here"
    return None
