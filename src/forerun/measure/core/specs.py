"""Expands a sweep spec (JSON, or YAML if PyYAML is installed) into its cases, deterministically."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

from forerun import networks
from forerun._util import documents
from forerun.runtimes.registry import USUAL

MAX_CASES = 200_000
KEY_FIELDS = (
    *("kind", "source", "name", "config", "overrides", "task", "attention", "mode", "batch", "dtype", "seq_len"),
    *("input_shape", "optimizer", "amp", "op", "shape", "direction", "epochs", "learning_rate", "threads"),
    *("runtime", "sha256", "layout", "class", "inputs", "new_tokens", "prompt", "decoding", "cache"),
    *("engine", "arrivals", "rate", "concurrency", "output", "spread"),
)

#: Settings that are left out of a case, so that one case has one key.
USUAL_SETTINGS = {"runtime": USUAL, "prompt": "full", "decoding": "greedy", "cache": "dynamic"}


def load(path: str) -> dict[str, Any]:
    spec = _read(Path(path))
    return _more(_read(Path(path).with_stem(str(spec["like"]))), spec) if "like" in spec else spec


def _read(path: Path) -> dict[str, Any]:
    spec = documents.read_yaml(path) if path.suffix in (".yaml", ".yml") else documents.read_json(path)
    if not isinstance(spec, dict):
        raise ValueError("it is not a mapping with the blocks of a sweep")
    return {"name": path.stem, **spec}


def _more(base: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Further members of the blocks of another spec: `times` as many draws, and as many settings of each."""
    times = int(spec.get("times", 1))
    blocks = []
    for block in base["blocks"]:
        variants = [{**v, "n": times * int(v["n"])} if "n" in v else v for v in block.get("variants", [])]
        wanted = {"per_model": times * int(block["per_model"])} if "per_model" in block else {}
        blocks.append({**block, **({"variants": variants} if variants else {}), **wanted})
    return {**base, "blocks": blocks, **{k: v for k, v in spec.items() if k not in ("like", "times")}}


def bounded(count: int) -> int:
    """The count. Raises if there are more cases than a sweep may have, before they are expanded."""
    if not 0 <= count <= MAX_CASES:
        raise ValueError(f"it lists {min(count, 10**99):.3g} cases, and {MAX_CASES:,} are the most of one sweep")
    return count


def key_of(case: dict[str, Any]) -> str:
    """The identity of a case: the model and its settings, without the family label."""
    identity = {k: case[k] for k in KEY_FIELDS if case.get(k) not in (None, {}, "")}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every case of a model spec; those of an operator spec come from `operator_cases.cases`."""
    out: dict[str, dict[str, Any]] = {}
    for block in spec["blocks"]:
        for model in models(block, int(spec.get("seed", 0))):
            rng = random.Random(f"{spec.get('seed', 0)}/{json.dumps(model, sort_keys=True)}")
            drawn = [case for case in _settings(block) if _fits(case, model, block)]
            wanted = int(model.pop("per_model", block.get("per_model", len(drawn))))
            for setting in rng.sample(drawn, min(wanted, len(drawn))):
                case = {"kind": "model", **model, **setting}
                for aid in ("billions", "dtypes"):
                    case.pop(aid, None)
                for name, usual in USUAL_SETTINGS.items():
                    if case.get(name) == usual:
                        del case[name]
                out.setdefault(key_of(case), case)
    return list(out.values())


def models(block: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Every model of a block: published names by family, configs, and randomly drawn variants."""
    listed: list[dict[str, Any]] = []
    for family, names in block.get("families", {}).items():
        for name in names:
            source, slash, bare = name.partition("/")
            entry = {"source": source, "name": bare} if slash else {"source": "timm", "name": name}
            if entry in ({"source": "torchvision", "name": n} for n in ("inception_v3", "googlenet")):
                entry["overrides"] = {"aux_logits": False, "init_weights": False}
            listed.append({"family": family, **entry})
    for name, settings in block.get("configs", {}).items():
        listed.append({"source": "hf", "name": name, "overrides": {}, **settings})
    for variant in block.get("variants", []):
        listed += _variants(variant, seed)
    return listed


def _variants(variant: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Draws `n` distinct members (all of them without `n`) of the product of the listed choices.

    `product` computes a setting from others: {"hidden_size": ["num_attention_heads", "_head"]}. Names with a leading
    underscore only serve as factors and are omitted from the result.
    """
    base = {k: v for k, v in variant.items() if k not in ("draw", "n", "product", "input_sizes")}
    draw: dict[str, list[Any]] = variant["draw"]
    everything = 1
    for choices in draw.values():
        everything *= len(choices)
    rng = random.Random(f"{seed}/{json.dumps(variant, sort_keys=True)}")
    count = bounded(min(int(variant.get("n", everything)), everything))
    drawn: dict[str, dict[str, Any]] = {}
    if count == everything:
        combos = [dict(zip(draw, combo, strict=True)) for combo in itertools.product(*draw.values())]
    else:
        unique: dict[str, dict[str, Any]] = {}
        for _ in range(1000 + 100 * count):
            if len(unique) == count:
                break
            combo = {key: rng.choice(choices) for key, choices in draw.items()}
            unique[json.dumps(combo)] = combo
        else:
            raise ValueError(f"fewer than {count} of its variants differ: a choice is listed twice")
        combos = list(unique.values())
    for combo in combos:
        for name, factors in variant.get("product", {}).items():
            value = 1.0
            for factor in factors:
                value *= combo[factor]
            combo[name] = max(1, round(value))
        settings = {k: v for k, v in combo.items() if not k.startswith("_")}
        model = dict(base)
        if base["source"] in networks.FILES:
            model["name"] = networks.family(base["source"]).name(**settings)
        else:
            model["overrides"] = {**base.get("overrides", {}), **settings}
        if variant.get("input_sizes"):
            size = rng.choice(variant["input_sizes"])
            model["input_shape"] = [3, size, size]
        drawn[json.dumps(model, sort_keys=True)] = model
    return list(drawn.values())


def _settings(block: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for setting in block["settings"]:
        lists = [value if isinstance(value, list) else [value] for value in setting.values()]
        bounded(math.prod(map(len, lists)))
        out += [dict(zip(setting, combo, strict=True)) for combo in itertools.product(*lists)]
    return out


def _fits(case: dict[str, Any], model: dict[str, Any], block: dict[str, Any]) -> bool:
    """Whether a case can run in time: not too many tokens, and no prompt beyond the model's positions."""
    length = case.get("seq_len", 1)
    if case.get("prompt") == "padded" and case["batch"] == 1:  # one prompt needs no padding
        return False
    decodes = case.get("mode") == "decode"
    per_pass = 1 if decodes else length
    billions = model.get("billions", 0.0)
    batch = case.get("batch", 1)
    if batch * per_pass * max(billions, 0.05) > float(block.get("max_billion_tokens", 1e9)):
        return False
    if batch * length > float(block.get("max_tokens", 1e12)):
        return False
    if case["dtype"] not in model.get("dtypes", DTYPES):
        return False
    config = model.get("config", {})
    positions = config.get("max_position_embeddings", config.get("n_positions", 10**9))
    reach = length + 8 if decodes else length + case.get("new_tokens", 0)
    return bool(reach <= positions)


DTYPES = ("fp32", "tf32", "fp16", "bf16", "int8", "int4", "nf4", "llm_int8")
