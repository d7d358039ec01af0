"""The start of the page: its name, one sentence, and examples that open with a click."""

from __future__ import annotations

from urllib.parse import urlencode

from forerun._util.version import __version__
from forerun.views.html.bars import text

HEADER = f"""<header class="forerun masthead"><div><h1>forerun</h1>
<p>Know how a deep-learning model will run before you run it: speed, memory, energy and cost, on any device.</p></div>
<nav aria-label="Elsewhere"><a href="/docs">REST and MCP</a>
<span class="faint">{text(__version__)}</span></nav></header>"""

_EXAMPLES = (
    ("ResNet-50 on an L4 and an H100", {"tab": "predict", "model": "resnet50", "devices": "l4,h100-sxm", "batch": "8"}),
    (
        "Llama 3.1 8B decoding for 16 users, with 2,048 tokens each",
        {"tab": "predict", "model": "meta-llama/Llama-3.1-8B", "devices": "a100-sxm4-80gb,h100-sxm,h200",
         "mode": "decode", "batch": "16", "seq_len": "2048", "dtype": "bf16"},
    ),
    (
        "A small network of your own, trained",
        {"tab": "predict", "model": "cnn:depth=6,filters=32", "devices": "t4,rtx4090", "mode": "training",
         "batch": "128", "samples": "50000"},
    ),
    ("Where the time of a Swin transformer goes", {"tab": "explain", "model": "swin_tiny_patch4_window7_224",
                                                    "devices": "h200", "batch": "64"}),
)  # fmt: skip
_LINKS = "".join(f'<li><a href="{text("?" + urlencode(query))}">{text(words)}</a></li>' for words, query in _EXAMPLES)
WELCOME = f"""<section class="forerun answer welcome"><h2>Choose a model and devices, then predict</h2>
<p>Every answer has a prediction interval, and says whether it was measured, learned from measurements, or computed
from a data sheet. Nothing leaves this machine.</p><ul class="notes">{_LINKS}</ul></section>"""
