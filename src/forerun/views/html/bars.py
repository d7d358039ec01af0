"""Small bars: an interval on the scale of its column, a share of a whole, a whole cut into its parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from forerun._util.readable import visible
from forerun.views.blocks import Share, Span

#: Colours in order: curves of a chart, parts of a bar.
COLOURS = ("#3b82c4", "#e07b39", "#3f9e6e", "#a05fb5", "#c94f63", "#8a8d3a", "#4aa3b0", "#96735a")
#: A column whose numbers span more than this factor has a logarithmic scale.
_LINEAR_UP_TO = 8.0
#: The least reach of a relative scale, so that a narrow interval looks narrow.
_LEAST_REACH = 2.0


def text(words: object) -> str:
    """Untrusted text, escaped for HTML."""
    return escape(visible(str(words)))


@dataclass(frozen=True)
class Scale:
    """Where numbers lie between the left end of a bar, 0, and its right end, 100."""

    low: float
    high: float
    logarithmic: bool = False
    relative: bool = False  # numbers are over the estimate of their cell

    def at(self, number: float) -> float:
        if self.logarithmic:
            place = math.log(number / self.low) / math.log(self.high / self.low)
        else:
            place = (number - self.low) / (self.high - self.low)
        return 100 * min(1.0, max(0.0, place))

    def places(self, span: Span) -> tuple[float, float, float]:
        """Low, value and high of a span on this scale."""
        over = span.value if self.relative else 1.0
        return self.at(span.low / over), self.at(span.value / over), self.at(span.high / over)


def scale_of(spans: Iterable[Span], relative: bool = False) -> Scale | None:
    """The common scale of a column: linear from zero, logarithmic where its numbers are of different sizes. A relative
    one is logarithmic around the estimate. None where there is nothing to draw."""
    drawable = [s for s in spans if _drawable(s)]
    if not drawable:
        return None
    positive = all(s.low > 0 for s in drawable)
    if relative:
        if not positive:
            return None
        low = min(1 / _LEAST_REACH, *(s.low / s.value for s in drawable))
        high = max(_LEAST_REACH, *(s.high / s.value for s in drawable))
        return Scale(low, high, logarithmic=True, relative=True)
    low, high = min(s.low for s in drawable), max(s.high for s in drawable)
    if positive and high / low > _LINEAR_UP_TO:
        return Scale(low, high, logarithmic=True)
    return Scale(min(low, 0.0), high) if high > min(low, 0.0) else None


def _drawable(span: Span) -> bool:
    return all(map(math.isfinite, (span.low, span.value, span.high))) and span.low <= span.value <= span.high


def interval_html(span: Span, scale: Scale | None) -> str:
    """An interval: its bar, whose tick is the estimate, and its ends in words; under the estimate where the cell has
    both."""
    words = text(span.words)
    low, _, high = words.partition(" … ")
    ends = f'<span class="ends"><span>{low}</span> … <span>{high}</span></span>' if high else words
    if scale is None or not _drawable(span):
        drawn = ends
    else:
        left, tick, right = scale.places(span)
        label = f"{text(span.number)}: between {low} and {high}" if span.number else f"between {low} and {high}"
        drawn = (
            f'<span class="bar" role="img" aria-label="{label}" title="{label}">'
            f'<i style="left:{left:.2f}%;width:{right - left:.2f}%"></i><b style="left:{tick:.2f}%"></b></span>{ends}'
        )
    return (
        f'<span class="number">{text(span.number)}</span><span class="below">{drawn}</span>' if span.number else drawn
    )


def share_html(share: Share, largest: float) -> str:
    """A share as a bar; the largest of its column fills the width."""
    width = 100 * share.share / largest if largest > 0 else 0.0
    return f'<span class="share" aria-hidden="true"><i style="width:{width:.2f}%"></i></span>'


def parts_html(parts: Sequence[tuple[str, float]], label: str) -> str:
    """A whole as one bar cut into named shares, with a legend."""
    shown = parts[: len(COLOURS)]
    words = [f"{name} {share:.1%}" for name, share in shown]
    cuts = "".join(
        f'<i style="width:{100 * share:.2f}%;background:{colour}" title="{text(name)}"></i>'
        for (_, share), colour, name in zip(shown, COLOURS, words, strict=False)
    )
    keys = "".join(
        f'<li><i style="background:{colour}"></i>{text(name)}</li>'
        for name, colour in zip(words, COLOURS, strict=False)
    )
    rest = 1 - sum(share for _, share in shown)
    keys += f"<li><i></i>others {rest:.1%}</li>" if rest >= 0.001 else ""
    spoken = text(f"{label}: {', '.join(words)}")
    return f'<div class="parts" role="img" aria-label="{spoken}">{cuts}</div><ul class="keys parts-keys">{keys}</ul>'
