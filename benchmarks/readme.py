"""Writes the figures of README.md and docs/ between their markers: `python benchmarks/readme.py`; `--check` compares.

A figure NAME stands between `<!-- figures: NAME -->` and `<!-- end -->` on the page that has the marker. Accuracy comes
from docs/scoreboard.json (`forerun evaluate --out docs`), speed from benchmarks/speed.json (`make bench`; `server` of
benchmarks/web_load.py, `captures` of benchmarks/capture_lengths.py). Prose around the markers is written by hand; no
figure of these results stands in it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from forerun.device import load_device
from forerun.evaluate import memory_rule, results
from forerun.evaluate.kinds import WELL_KNOWN
from forerun.evaluate.neusight import DATASET as NEUSIGHT_SUMS
from forerun.evaluate.test_set import GPU

ROOT = Path(__file__).parent.parent
#: What the table of accuracy shows: words, target, regime.
LINES = (
    ("device time", "device_ms", "all"), ("device time, training, device-bound", "device_ms", "training, device-bound"),
    ("device time, prefill", "device_ms", "prefill"), ("device time, decode", "device_ms", "decode"),
    ("latency", "latency_ms", "all"), ("latency, device-bound", "latency_ms", "device-bound"),
    ("latency, host-bound", "latency_ms", "host-bound"), ("latency as a CUDA graph", "graph_ms", "all"),
    ("`--runtime compile`, device time", "device_ms", "compile"),
    ("`--runtime compile`, latency", "latency_ms", "compile"), ("energy", "energy_j", "all"),
    ("memory needed", "memory_mb", "all"), ("tensors at peak", "memory_allocated_mb", "all"),
)  # fmt: skip
#: A 90 % interval with a coverage below this is listed.
LOW_COVERAGE = 0.86
_WORDS = {"device_ms": "device time", "latency_ms": "latency", "energy_j": "energy", "graph_ms": "CUDA graphs",
          "memory_mb": "memory needed", "memory_allocated_mb": "tensors at peak"}  # fmt: skip


class StoredResults:
    """The stored tables, and single figures of them."""

    def __init__(self, root: Path) -> None:
        self.sections = results.read(root / "docs")
        self.speed = json.loads((root / "benchmarks" / "speed.json").read_text())

    @property
    def joined(self) -> bool:
        """Whether relatives were held out too; older predictions were judged by the names of families."""
        return "by_name" in self.sections

    def table(self, name: str) -> pd.DataFrame:
        if name not in self.sections:
            raise SystemExit(f"docs/{results.FILE} has no table {name!r}: run forerun evaluate --out docs")
        return self.sections[name].table

    def value(self, name: str, column: str, **where: str) -> float | None:
        """The figure of the one line that meets the conditions; None where there is none."""
        found = self.table(name)
        for key, wanted in where.items():
            found = found[found[key] == wanted]
        if len(found) != 1 or column not in found or pd.isna(found[column].iloc[0]):
            return None
        return float(found[column].iloc[0])


def percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f} %"


def spread(values: pd.Series) -> str:
    """'13 to 28 %'."""
    low, high = (percent(value, 0) for value in (values.min(), values.max()))
    return f"{low.removesuffix(' %')} to {high}"


def wrapped(text: str) -> str:
    """Lines of 120 characters that part no number from its percent sign."""
    joined = text.replace(" %", "\0%")
    return textwrap.fill(joined, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines)


def accuracy(stored: StoredResults) -> str:
    """The table of errors on held-out families, with baselines and the noise floor beside."""

    def one(words: str, target: str, regime: str, predictor: str = "default") -> list[str]:
        here = {"target": target, "regime": regime}
        mine = {**here, "predictor": predictor}
        simple = memory_rule.NAME if target.startswith("memory") else "one-ratio"
        held = percent(stored.value("families", "interval_coverage", **mine), 0)
        exam = percent(stored.value("exam", "interval_coverage", **mine), 0)
        probed = ", host probed" if predictor.endswith("probed") else ""
        return [
            words + probed, percent(stored.value("families", "mape", **mine)),
            *([percent(stored.value("by_name", "mape", **mine))] if stored.joined else []),
            percent(stored.value("exam", "mape", **mine)),
            "" if probed else percent(stored.value("families", "mape", **here, predictor="roofline")),
            "" if probed else percent(stored.value("families", "mape", **here, predictor=simple), 0),
            percent(stored.value("noise", "mape", quantity=target + probed, regime=regime)),
            f"{held} ({exam})" if held and exam else held,
            percent(stored.value("families", "interval_width", **mine), 0),
        ]  # fmt: skip

    shown = ("held out", "held out by name") if stored.joined else ("held out by name",)
    heads = ("mean error", *shown, "test set", "`roofline`", "one ratio or rule of thumb", "repeat noise",
             "coverage of 90 % intervals (test set)", "mean width")  # fmt: skip
    rows = []
    for line in LINES:
        rows.append(one(*line))
        if line[1:] == ("latency_ms", "all"):
            rows.append(one(*line, "default, host probed"))
    return table(heads, rows)


def split(stored: StoredResults) -> str:
    """What was held out."""
    relatives = (
        "architectural relatives, families whose blocks are alike (BERT, RoBERTa, ELECTRA and others; Llama, Mistral, "
        "Qwen2 and others: `forerun evaluate --groups` prints all groups)"
    )
    if stored.joined:
        return wrapped(
            f"Whole families of models are held out together with their {relatives}, several groups at a time. "
            '"Held out by name" is an easier split, in which relatives stay in training (`--split name`).'
        )
    return wrapped(
        f"Whole families of models are held out by name, several at a time: their {relatives}, stayed in training, "
        "which makes these figures optimistic. They are held out too from the next fit on."
    )


def counts(stored: StoredResults) -> str:
    """How many cases the table is based on."""
    many = {name: stored.value(name, "n", target="device_ms", regime="all", predictor="default") or 0
            for name in ("families", "exam")}  # fmt: skip
    few = [f"{words.removeprefix('device time, ')} {int(n)}" for words, target, regime in LINES
           if (n := stored.value("exam", "n", target=target, regime=regime, predictor="default")) and n < 50
           and target == "device_ms"]  # fmt: skip
    text = f"{int(many['families']):,} H200 cases of families used for tuning, {int(many['exam']):,} of the test set"
    return wrapped(text + (f" (there, some lines have few cases: {', '.join(few)})." if few else "."))


def intervals(stored: StoredResults) -> str:
    """Every line of `default` whose 90 % interval has a coverage below LOW_COVERAGE, on held-out families."""
    lines = stored.table("families")
    mine = lines[(lines["predictor"] == "default") & (lines["interval_coverage"] < LOW_COVERAGE)]
    told = [
        (f"{_WORDS[one.target]}, {one.regime}", one.n, one.interval_coverage, one.mape) for one in mine.itertuples()
    ]
    for name, words in (("cpu", "latency on CPUs"), ("onnxruntime", "latency under onnxruntime")):
        lines = stored.table(name)
        low = lines[(lines["predictor"] == "default") & (lines["interval_coverage"] < LOW_COVERAGE)]
        told += [(f"{words}, {one.regime}", one.n, one.interval_coverage, one.mape) for one in low.itertuples()]
    rows = [(words, f"{int(n):,}", percent(held, 0), percent(error, 0)) for words, n, held, error in told]
    return table(("quantity", "cases", "coverage", "mean error"), rows)


def gpus(stored: StoredResults) -> str:
    """Whole models on held-out GPUs, one by one: what a user gets."""
    lines = stored.table("models")
    rows = []
    order = lines[(lines["predictor"] == "default") & (lines["regime"] == "all") & (lines["device"] != "all")]
    for one in order.sort_values(["data set", "mape"]).to_dict("records"):
        here = {"data set": one["data set"], "device": one["device"], "regime": "all"}
        name = load_device(one["device"]).name + (" (test set)" if one["device"] == GPU else "")
        ratio = percent(stored.value("models", "mape", **here, predictor="one ratio"))
        rows.append((one["data set"], name, f"{int(one['n']):,}", percent(one["mape"]), ratio,
                     percent(one["interval_coverage"], 0), percent(one["interval_width"], 0)))  # fmt: skip
    for name in sorted(lines["data set"].unique()):
        for regime in ("device-bound", "host-bound"):
            here = {"data set": name, "device": "all", "regime": regime}
            n = stored.value("models", "n", **here, predictor="default")
            if n is None or name == "all":
                continue
            mine = {column: stored.value("models", column, **here, predictor="default")
                    for column in ("mape", "interval_coverage", "interval_width")}  # fmt: skip
            rows.append((name, f"all, {regime}", f"{int(n):,}", percent(mine["mape"]),
                         percent(stored.value("models", "mape", **here, predictor="one ratio")),
                         percent(mine["interval_coverage"], 0), percent(mine["interval_width"], 0)))  # fmt: skip
    heads = ("set", "GPU", "cases", "mean error", "one ratio", "coverage of 90 % intervals", "mean width")
    return table(heads, rows)


def operators(stored: StoredResults) -> str:
    """Single operators on held-out GPUs, and sums over a model beside NeuSight's own predictions."""
    lines = stored.table("operators")
    single = lines[(lines["op"] == "all") & (lines["device"] != "all") & (lines["predictor"] == "default")]
    single = single[single["data set"] != NEUSIGHT_SUMS]
    cards = ", ".join(f"{load_device(one.device).name} {percent(one.mape, 0)}" for one in single.itertuples())
    sums = lines[(lines["data set"] == NEUSIGHT_SUMS) & (lines["op"] != "all")]
    theirs = sums[sums["predictor"] == "NeuSight"]
    rows = []
    for one in theirs.to_dict("records"):
        ours = sums[(sums["device"] == one["device"]) & (sums["op"] == one["op"]) & (sums["predictor"] == "default")]
        card = "all three" if one["device"] == "all" else load_device(one["device"]).name
        cells = (f"{int(one['n']):,}", percent(float(ours["mape"].iloc[0]), 0), percent(one["mape"], 0))
        rows.append((one["op"], card, *cells))
    rows.sort(key=lambda row: (row[0], row[1] != "all three", row[1]))
    words = (
        f"Mean error of single operators: {cards}. Of sums of a class of operators over a model, on the rows for which "
        "NeuSight's authors publish their own predictions:"
    )
    return wrapped(words) + "\n\n" + table(("operators", "GPU", "cases", "forerun", "NeuSight"), rows)


def kinds(stored: StoredResults) -> str:
    """Kinds of network that were held out whole."""

    def figure(target: str, column: str = "mape", regime: str = "all") -> str:
        return percent(stored.value("kinds", column, target=target, regime=regime, predictor="default"))

    each = stored.table("by_kind_default")
    new = each[~each["kind"].isin(WELL_KNOWN)]
    worst = " and ".join(f"{one.kind} {percent(one.mape, 0)}" for one in new.head(2).itertuples())
    known = ", ".join(f"{one.kind} {percent(one.mape)}" for one in each[each["kind"].isin(WELL_KNOWN)].itertuples())
    many = int(stored.value("kinds", "n", target="device_ms", regime="all", predictor="default") or 0)
    held = {target: figure(target, "interval_coverage") for target in ("device_ms", "latency_ms")}
    low = each.sort_values("interval_coverage").head(3)
    lowest = ", ".join(f"{one.kind} {percent(one.interval_coverage, 0)}" for one in low.itertuples())
    return wrapped(
        f"{len(new)} kinds ({many:,} cases): device time {figure('device_ms')} (median "
        f"{figure('device_ms', 'median_ape')}; worst: {worst}), latency of device-bound calls "
        f"{figure('latency_ms', regime='device-bound')}, energy {figure('energy_j')}, CUDA graphs "
        f"{figure('graph_ms')}; 90 % intervals cover {held['device_ms']} of device times (lowest: {lowest}) and "
        f"{held['latency_ms']} of latencies. The well-known kinds, each held out as a whole (device time): {known}."
    )


def headline(stored: StoredResults) -> str:
    """What the first page says."""

    def of(target: str, predictor: str = "default", table_of: str = "families") -> str:
        return percent(stored.value(table_of, "mape", target=target, regime="all", predictor=predictor), 0)

    lines = stored.table("models")
    cards = lines[(lines["predictor"] == "default") & (lines["regime"] == "all") & (lines["device"] != "all")]
    ratios = lines[(lines["predictor"] == "one ratio") & (lines["regime"] == "all") & (lines["device"] != "all")]
    held = stored.value("families", "interval_coverage", target="device_ms", regime="all", predictor="default")
    relatives = " together with their architectural relatives" if stored.joined else " by name"
    repeated = percent(stored.value("noise", "mape", quantity="latency_ms", regime="all"), 0)
    return wrapped(
        f"On an H200, for model families held out{relatives}, the mean error of device time is {of('device_ms')} "
        f"(baselines: roofline with fitted efficiencies {of('device_ms', 'roofline')}, plain roofline times one "
        f"constant {of('device_ms', 'one-ratio')}), of latency {of('latency_ms')} "
        f"(repeating the measurement on our shared host changes it by {repeated}), of energy {of('energy_j')}, of "
        f"memory {of('memory_mb')} (simulated; a rule of thumb: {of('memory_mb', memory_rule.NAME)}). The 90 % "
        f"prediction intervals cover {percent(held, 0)} of device times. On GPUs without any measurement the mean "
        f"error is {spread(cards['mape'])} by GPU (roofline times one constant: {spread(ratios['mape'])}), and the "
        f"90 % intervals cover {spread(cards['interval_coverage'])}."
    )


def on_cpus(stored: StoredResults) -> str:
    """CPUs, with PyTorch and onnxruntime."""

    def words(name: str) -> str:
        columns = ("n", "mape", "interval_coverage")
        n, error, held = (stored.value(name, column, regime="all", predictor="default") for column in columns)
        ratio = percent(stored.value(name, "mape", regime="all", predictor="one-ratio"), 0)
        inside = f"90 % intervals cover {percent(held, 0)} of {int(n or 0):,} cases"
        return f"{percent(error, 0)} (one ratio {ratio}; {inside})"

    predicted = f"PyTorch {words('cpu')}, onnxruntime {words('onnxruntime')}"
    return wrapped(f"Mean error of latency on families held out by name: {predicted}.")


def border(stored: StoredResults) -> str:
    """How often `fits` is right, and what its margin costs."""
    lines = stored.table("fits").set_index("cases")
    each, near = lines.loc["all trials and all rows that ran"], lines.loc["all trials, near the limit"]
    text = (
        "How often `fits` is right on an H200, judged on the cases that the margin was chosen with (`forerun evaluate "
        f"--fits`): of {int(each['ran out of memory'])} batches that ran out of memory {each['recall']} are predicted "
        f"not to fit, and of {int(each['ran']):,} that ran {each['share refused']} are predicted not to. The margin "
        f"costs the last batches before the limit: of {int(near['ran'])} that ran near it, {near['share refused']}."
    )
    return wrapped(text.replace("%", " %"))


def host(stored: StoredResults) -> str:
    """How far the latency of small calls moves by itself."""
    moved = percent(stored.value("noise", "mape", quantity="latency_ms", regime="host-bound"), 0)
    return wrapped(f"The host sets the latency of small calls; on ours, repeating such a call changed it by {moved}.")


def doubts(stored: StoredResults) -> str:
    """What the figures say should not be trusted."""

    def held(regime: str, target: str) -> str:
        here = {"target": target, "regime": regime, "predictor": "default"}
        return percent(stored.value("families", "interval_coverage", **here), 0)

    pairs = [
        f"{held(one, 'memory_mb')} of memory needed and {held(one, 'memory_allocated_mb')} of tensors at peak (`{one}`)"
        for one in ("compile", "compile-reduce-overhead")
    ]
    decode = {"regime": "decode", "predictor": "default"}
    error, inside = (percent(stored.value("cpu", column, **decode), 0) for column in ("mape", "interval_coverage"))
    return wrapped(
        f"Do not trust memory of compiled code either: on held-out families, its 90 % intervals cover "
        f"{' and '.join(pairs)}. Nor decoding on a CPU (two families measured): {error} mean error, coverage {inside}."
    )


def captures(stored: StoredResults) -> str:
    """How long it takes to capture the whole catalogue."""
    found = stored.speed["captures"]
    slowest, since = ("; ".join(f"{what}: {s:g} s" for what, s in found[name]) for name in ("slowest", "since"))
    return wrapped(
        "Capturing every architecture of the Hugging Face catalogue at 128 and at 2,048 tokens (`python "
        f"benchmarks/capture_lengths.py`, {found['captures']:,} captures, {found['machine']}): all but "
        f"{found['over_limit']} take less than {found['limit_s']} s. The slowest are {slowest}. Captured again on a "
        f"busy core since building and recording became quicker: {since}."
    )


def server(stored: StoredResults) -> str:
    """The server under load."""
    found = stored.speed["server"]
    first, last = found["memory_mb"]
    return wrapped(
        f"`forerun serve` on {found['machine']}, {found['clients']} clients with mixed cached predictions for "
        f"{found['seconds']:g} s (`python benchmarks/web_load.py`): {found['requests_per_s']} requests/s, median "
        f"{found['median_s']:.2f} s, 99 % {found['p99_s']:.2f} s, {found['errors'] or 'no'} errors; its memory went "
        f"from {first} to {last} MB over {found['requests']:,} requests. The direct call there takes "
        f"{found['direct_ms']} ms."
    )


def speed(stored: StoredResults) -> str:
    """The speed figures, and what each must not exceed."""
    rows = []
    for one in stored.speed["figures"]:
        measured = f"{one['measured']:.2g}" if one["measured"] < 10 else f"{one['measured']:.0f}"
        rows.append((one["what"], f"{measured} {one['unit']}", f"{one['at_most']:g} {one['unit']}"))
    return table(("what", "measured", "at most"), rows) + f"\n\nMeasured on {stored.speed['machine']}."


FIGURES: dict[str, Callable[[StoredResults], str]] = {
    "headline": headline, "speed": speed, "split": split, "counts": counts, "accuracy": accuracy,
    "intervals": intervals, "gpus": gpus, "operators": operators, "kinds": kinds, "cpus": on_cpus,
    "border": border, "host": host, "doubts": doubts, "captures": captures, "server": server,
}  # fmt: skip
_MARKER = re.compile(r"<!-- figures: (\w+) -->")


def pages(root: Path) -> dict[Path, str]:
    """The pages that have markers, with their text; every figure has one place in all of them."""
    found = {path: path.read_text() for path in (root / "README.md", *sorted((root / "docs").glob("*.md")))}
    found = {path: text for path, text in found.items() if _MARKER.search(text)}
    names = [name for text in found.values() for name in _MARKER.findall(text)]
    if sorted(names) != sorted(FIGURES):
        wrong = sorted(name for name in {*names, *FIGURES} if names.count(name) != (name in FIGURES))
        raise SystemExit(f"every figure needs one marker on one page, and every marker a figure: {wrong}")
    return found


def written(text: str, stored: StoredResults) -> str:
    """A page with every figure between `<!-- figures: NAME -->` and `<!-- end -->` as the stored results have it."""
    for name in _MARKER.findall(text):
        marked = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        made = FIGURES[name](stored)
        text, many = marked.subn(lambda m, made=made: m[1] + made + "\n" + m[2], text)
        if many != 1:
            raise SystemExit(f"the figures {name} must be closed by <!-- end -->")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say which pages differ, and change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    given = parser.parse_args(arguments)
    stored, differ = StoredResults(given.root), 0
    for path, before in pages(given.root).items():
        after = written(before, stored)
        if after == before:
            continue
        differ = 1
        if given.check:
            name = path.relative_to(given.root)
            print(f"{name} differs from the stored results: run python benchmarks/readme.py", file=sys.stderr)
        else:
            path.write_text(after)
    return differ if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
