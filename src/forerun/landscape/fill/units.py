"""Quantities in sentences: numbers with their units, found by rules and brought to one unit by pint."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from forerun._util.extras import needed
from forerun.landscape.amounts import NUMBER, SCALE, worth

#: Units of notes on models that pint does not know; for pint a byte is a plain number.
_DEFINITIONS = (
    "flop = [computation]", "chip = [chip]", "parameter = [parameter]", "datum = [datum]", "usd = [money]",
    "epoch = [epoch]", "core = [core]",
    "memory_byte = [memory]",
)  # fmt: skip
AFTER = 40  # characters kept after a quantity, and searched before it
#: The kinds of quantity that are searched for, and the unit of each.
KINDS = {
    "time": "hour", "chip time": "chip * hour", "computation": "flop", "speed": "flop / second", "chips": "chip",
    "parameters": "parameter", "data": "datum", "money": "usd", "share": "dimensionless", "epochs": "epoch",
}  # fmt: skip

_CHIP = (
    r"(?:(?:NVIDIA|Google|Cloud|Tesla|GeForce|Ascend|AMD)\s+)*"
    r"(?:(?:[AHVPKB]\d{2,4}|TPU[\s-]?v\d\w?|MI\d{3}X?|[RG]TX\s?\w+|\d{4}\s?Ti|Titan\s?\w+|\d{3}[A-C])(?:s\b|[\s-]*(?:\d+\s?GB|SXM\d?|PCIe))*[\s-]*)"
    r"?(?:GPUs?|TPUs?|chips?|accelerators?|NPUs?)|(?:[AHVPK]\d{2,4}|TPU[\s-]?v\d\w?|MI\d{3}X?|GTX\s?\w+|Titan\s?\w+)s?"
)
_TIMES = {
    "hour": r"hours?|hrs?|h", "day": r"days?", "week": r"weeks?", "month": r"months?", "year": r"years?",
    "minute": r"minutes?|mins?", "second": r"seconds?|secs?|s",
}  # fmt: skip
_TIME = "|".join(f"(?P<{unit}>{words})" for unit, words in _TIMES.items())
_PREFIXES = {"k": "kilo", "m": "mega", "g": "giga", "t": "tera", "p": "peta", "e": "exa", "z": "zetta", "y": "yotta"}
_PREFIX = r"(?P<prefix>kilo|mega|giga|tera|peta|exa|zetta|yotta|[KMGTPEZY])?[\s-]?"
_DATA = (
    "tokens? words? images? samples? examples? datapoints? sentences? sequences? pairs frames ratings games "
    "videos? clips proteins? molecules? positions? documents? characters? patches? utterances? instances?"
)
#: What may follow a number, in the order in which it is tried, and its unit for pint.
_UNITS = (
    # Hours of cores, machines and people: no training times, and no chip hours, as a chip has several cores.
    (rf"(?:{_CHIP}|CPU|machine|node|person|man|human)?[\s-]*cores?[\s-]+(?:{_TIME})", "core * {time}"),
    (rf"(?:CPU|machine|node|person|man|human)[\s-]+(?:{_TIME})", "core * {time}"),
    (rf"(?:{_CHIP})[\s-]+(?:{_TIME})", "chip * {time}"),
    (r"(?:PF|PFs|PF/s|PFLOPS?)[\s-]*(?P<day>days?)", "petaflop / second * {time}"),
    (rf"{_PREFIX}FLOPS?(?:\s?/\s?s(?:ec(?:ond)?)?)?[\s-]*(?P<day>days?)", "{prefix}flop / second * {time}"),
    (r"PF", "petaflop"),
    (r"(?P<prefix>(?-i:[GTPE]))(?-i:FLOPS)", "{prefix}flop / second"),
    (rf"{_PREFIX}FLOPS?(?:\s?/\s?(?:s\b|sec|GPU|chip|TPU|A100|H100|V100)|\s?per\s+sec|ps\b)", "{prefix}flop / second"),
    (rf"{_PREFIX}FLOPS?\s?/\s?(?:param|token|step|image|forward)", "flop / second"),  # not a total
    (rf"{_PREFIX}(?:FLOPS?|floating[\s-]point operations)", "{prefix}flop"),
    (r"[KMGTP]i?B(?:ytes?)?", "memory_byte"),
    (r"(?:[A-Za-z]+[\s-]+){0,2}?(?:parameters?|params?|weights)", "parameter"),
    (r"(?:[A-Za-z]+\s+)?epochs?", "epoch"),
    (rf"(?:[A-Za-z\-&]+\s+){{0,3}}?(?:{'|'.join(_DATA.split())}|data\s+points?)", "datum"),
    (rf"(?:[x×]\s?|[A-Za-z]+\s+)?(?:{_CHIP})", "chip"),
    (r"(?:US\s?)?(?:dollars?|USD)", "usd"),
    (r"%|percent", "percent"),
    (rf"(?:[A-Za-z]+\s+)?(?:{_TIME})", "{time}"),
)
_COMPILED = tuple(
    (re.compile(rf"[\s\-–]{{0,2}}(?:{pattern})(?![A-Za-z])", re.IGNORECASE), unit) for pattern, unit in _UNITS
)
#: Not the end of a name: GPT-4, K-6000.
_NUMBER = re.compile(rf"(?<![\w.,^])(?<![A-Za-z][-‐‑])(?P<dollar>\$\s?)?{NUMBER}(?:\s*-?{SCALE})?", re.IGNORECASE)
_WORDS = {
    word: str(number)
    for number, word in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), start=1)
}
_IN_WORDS = re.compile(
    rf"\b({'|'.join(_WORDS)})\b(?=[\s-]+(?:full\s+)?(?:{'|'.join(_TIMES.values())}|{_CHIP}|epochs?|[mb]illion)\b)",
    re.IGNORECASE,
)
_A_WEEK = re.compile(r"\ban?\s+(?=(?:hour|day|week|month|year)\b)", re.IGNORECASE)
_PRODUCT = re.compile(r"[\d.,]{1,20}[kKM]?(?:\s*[*x×]\s*[\d.,]{1,20}[kKM]?){1,3}\s*")
_NUMBERED = re.compile(rf"\d|\b(?:{'|'.join(_WORDS)}|an?)\s", re.IGNORECASE)
_LINK = re.compile(r"https?://\S+")
_PER = re.compile(r"\s*(?:/|per\b|an?\s+hour\b)", re.IGNORECASE)
_EQUALS = re.compile(r"(?:=|≈|→|-->)\s*(?:about|around|approx\w*\.?|~)?\s*$")


@dataclass(frozen=True)
class Mention:
    """A quantity in a sentence: its kind and its value in the kind's unit, and how it is written.

    The kind is '' for a number without a unit, and 'other' for a unit that is not searched for.
    """

    kind: str
    value: float
    scaled: bool  # a word or letter such as B or million follows the number
    after_equals: bool
    per: bool  # by something else: $2 per hour
    start: int
    end: int
    after: str  # what follows it


@lru_cache(maxsize=50_000)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences and lines of a note that hold a number."""
    parts = re.split(r"\n+|(?<=[.!?;])[\"”']?\s+(?=[\"“'(A-Z0-9])", text)
    return tuple(part.strip() for part in parts if _NUMBERED.search(part))


@lru_cache(maxsize=100_000)
def mentions(sentence: str) -> tuple[Mention, ...]:
    """Every number of a sentence with its unit, in order."""
    text = _LINK.sub(lambda found: " " * len(found[0]), sentence)
    text = _IN_WORDS.sub(lambda found: _WORDS[found[1].lower()], text)
    text = _A_WEEK.sub("1 ", text)
    found: list[Mention] = []
    end = 0
    for number in _NUMBER.finditer(text):
        if number.start() < end:
            continue  # inside the unit of the number before
        mention = _mention(text, number)
        if mention is not None:
            found.append(mention)
            end = mention.end
    return tuple(found)


def product(sentence: str) -> float | None:
    """The product that a sentence consists of, such as 2304 * 4096; None for any other sentence."""
    if not _PRODUCT.fullmatch(sentence):
        return None
    factors = [_NUMBER.fullmatch(part.strip()) for part in re.split(r"[*x×]", sentence)]
    return math.prod(worth(factor) for factor in factors if factor) if all(factors) else None


def _mention(text: str, number: re.Match[str]) -> Mention | None:
    """One number with what follows it; None for a number that cannot be a quantity."""
    value, unit, end = worth(number), "", number.end()
    if number["dollar"]:
        unit = "usd"
    else:
        for pattern, expression in _COMPILED:
            if after := pattern.match(text, end):
                unit, end = _filled(expression, after), after.end()
                break
    if unit == "usd" and not number["dollar"] and 1990 <= value <= 2040:
        return None  # dollars of a year
    kind, value = _in_unit(value, unit) if unit else ("", value)
    if not 0 < value < float("inf"):
        return None
    start = number.start()
    # Only right before the number: searching all text before each number would be quadratic.
    equals = _EQUALS.search(text, max(0, start - AFTER), start)
    return Mention(
        kind, value, number["scale"] is not None, equals is not None,
        _PER.match(text, end) is not None, start, end,
        text[end : end + AFTER],
    )  # fmt: skip


def _filled(expression: str, after: re.Match[str]) -> str:
    """A unit for pint, with the prefix and the unit of time that were written."""
    groups = after.groupdict()
    prefix = (groups.get("prefix") or "").lower()
    time = next((unit for unit in _TIMES if groups.get(unit)), "")
    return expression.format(prefix=_PREFIXES.get(prefix, prefix), time=time)


@cache
def _registry() -> Any:
    """pint's units and ours."""
    with needed("reading numbers with units", "landscape"):
        import pint
    registry: Any = pint.UnitRegistry()
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


@cache
def _worth(unit: str) -> tuple[str, float]:
    """The kind of quantity that a unit measures, and what one of it is in the kind's unit."""
    quantity = _registry().Quantity(1.0, unit)
    for kind, chosen in KINDS.items():
        if quantity.is_compatible_with(chosen):
            return kind, float(quantity.to(chosen).magnitude)
    return "other", 1.0


def _in_unit(value: float, unit: str) -> tuple[str, float]:
    """A quantity's kind and its value in the kind's unit."""
    kind, factor = _worth(unit)
    return kind, value * factor
