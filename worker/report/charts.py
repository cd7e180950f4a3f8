"""The report's charts as small PNGs: numbers and no words, so that one serves every language.

Titles, names and the same numbers stand in the table beneath; a row's number is the chart's.
No font beside Pillow's own is needed, and Pillow is imported with the first chart.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from worker.errors import UsageError
from worker.money import NANOS_PER_UNIT
from worker.report.detail import BRIEF
from worker.report.month_tables import DAILY_CHART, TREND_CHART
from worker.report.packages import PACKAGE_CURE
from worker.report.ranking_tables import PEERS_CHART, PLACES_SHOWN, main_places, standing_bars
from worker.report.reader import MONEY_PLACES, percent, plain
from worker.report.split_tables import shown_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from worker.roi.summary import Summary

WIDTH: Final = 1120  # shown at half of it, for screens of two dots to a pixel
HEIGHT: Final = 480
BAR_HEIGHT: Final = 60
COLOURS: Final = 32
FONT_SIZE: Final = 32  # a phone shows it at a quarter
LEFT: Final = 130
TOLD: Final = 190  # a figure at a lying bar's head
RIGHT: Final = 20
TOP: Final = 56
BOTTOM: Final = 60
BARS_MAX: Final = 24
DASH: Final = 15
PAPER: Final = "#ffffff"
INK: Final = "#374151"
GRID: Final = "#e5e7eb"
BLUE: Final = "#2563eb"
LIGHT_BLUE: Final = "#93c5fd"
RED: Final = "#dc2626"
GREY: Final = "#9ca3af"
ROUNDS_UP: Final = 0.9995  # of a step: with three digits that is one
_STEPS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with what stands at its foot and at its head; ``size`` None: there is no figure."""

    label: str
    size: float | None
    told: str = "?"


def draw_charts(summary: Summary) -> dict[str, bytes]:
    """PNGs by the names that tables have in ``charts``.

    Raises UsageError where Pillow isn't installed: a report without charts is still complete.
    """
    try:
        import PIL.Image  # noqa: F401  the others import parts of it
    except ImportError:
        raise UsageError(f"charts need Pillow: {PACKAGE_CURE}") from None
    result: dict[str, bytes] = {}
    for number, curve in enumerate(summary.curves, 1):
        even = curve.even_cost_nanos.value
        bars = [Bar(f"{point.day.day}", _units(point.cost_nanos)) for point in curve.points]
        line = None if even is None else float(even / NANOS_PER_UNIT)
        result[DAILY_CHART.format(number)] = _columns(bars, line, every=5)
    months = [
        Bar(f"{one.month:%m}", None if one.own is None else _units(one.own.cost_nanos))
        for one in summary.trend
    ]
    result[TREND_CHART] = _columns(months, None, every=1)
    for name, split in (("apps", summary.splits.apps), ("models", summary.splits.models)):
        shares = [one.cost_share.value for one in shown_lines(split, BRIEF.lines)]
        if shares:
            result[name] = _rows([_share_bar(n, one) for n, one in enumerate(shares, 1)], None)
    if summary.department is None:
        return result | _places(summary)
    standing = [
        Bar(f"{number}", float(part) + 1, f"{'+' if part > 0 else ''}{percent(part)}")
        for number, part in standing_bars(summary)
    ]
    return result | ({PEERS_CHART: _rows(standing, 1.0)} if standing else {})


def _share_bar(number: int, share: Fraction | None) -> Bar:
    if share is None:
        return Bar(f"{number}", None)
    return Bar(f"{number}", float(share), percent(share))


def _places(summary: Summary) -> dict[str, bytes]:
    """Each department's unit cost, with the median of all as the line."""
    places = main_places(summary)
    if places is None:
        return {}
    middle = next(one.median.value for one in summary.standings if one.measure == places.measure)
    bars: list[Bar] = []
    for number, one in enumerate(places.places[:PLACES_SHOWN], 1):
        own = one.own.value
        if own is None:
            bars.append(Bar(f"{number}", None))
        else:
            units = own / NANOS_PER_UNIT
            bars.append(Bar(f"{number}", float(units), plain(units, MONEY_PLACES)))
    line = None if middle is None else float(middle / NANOS_PER_UNIT)
    return {PEERS_CHART: _rows(bars, line)}


def _units(nanos: int) -> float:
    return nanos / NANOS_PER_UNIT


def short_number(value: float) -> str:
    """A number for an axis: 1.5M, 20k, 0.05."""
    for step, letter in _STEPS:
        part = value / step
        if abs(part) >= ROUNDS_UP:
            return f"{part:.3g}{letter}" if abs(part) < ROUNDS_UP * 1000 else f"{part:,.0f}{letter}"
    return f"{value:.3g}"


def scale(sizes: Sequence[float]) -> tuple[float, float]:
    """Where an axis ends, below and above; 0 is on it, and it has a length."""
    low, high = min(0.0, *sizes, 0.0), max(0.0, *sizes, 0.0)
    return (low, high) if high > low else (0.0, 1.0)


def _canvas(height: int) -> tuple[Any, Any, Any]:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (WIDTH, height), PAPER)
    return image, ImageDraw.Draw(image), ImageFont.load_default(FONT_SIZE)


def _columns(bars: Sequence[Bar], line: float | None, *, every: int) -> bytes:
    """Upright bars; ``line``: drawn across, as what they are to be seen against."""
    image, draw, font = _canvas(HEIGHT)
    sizes = [bar.size for bar in bars if bar.size is not None]
    low, high = scale([*sizes, line or 0.0])
    foot, head = HEIGHT - BOTTOM, TOP

    def y(size: float) -> int:
        return round(foot - (size - low) / (high - low) * (foot - head))

    for part in range(5):
        size = low + (high - low) * part / 4
        draw.line([(LEFT, y(size)), (WIDTH - RIGHT, y(size))], fill=GRID, width=2)
        draw.text((LEFT - 10, y(size)), short_number(size), fill=INK, font=font, anchor="rm")
    step = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    for number, bar in enumerate(bars):
        middle = LEFT + step * (number + 0.5)
        if bar.size is None:
            draw.text((middle, foot - 22), "?", fill=GREY, font=font, anchor="mm")
        elif bar.size:
            top, bottom = sorted((y(bar.size), y(0.0)))
            half = min(step * 0.36, 60)
            draw.rectangle([middle - half, top, middle + half, bottom], fill=BLUE)
        if bar.size is not None and every == 1:
            told = short_number(bar.size)
            draw.text((middle, y(max(bar.size, 0.0)) - 22), told, fill=INK, font=font, anchor="mm")
        if every == 1 or number == 0 or (number + 1) % every == 0:
            draw.text((middle, foot + 32), bar.label, fill=INK, font=font, anchor="mm")
    if line is not None:
        for start in range(LEFT, WIDTH - RIGHT, 2 * DASH):
            draw.line([(start, y(line)), (start + DASH, y(line))], fill=RED, width=4)
    return _png(image)


def _rows(bars: Sequence[Bar], line: float | None) -> bytes:
    """Bars that lie, with their figures; ``line``: drawn upright, as what they are against."""
    shown = list(bars[:BARS_MAX])
    image, draw, font = _canvas(BAR_HEIGHT * len(shown) + 2 * FONT_SIZE)
    low, high = scale([*(bar.size for bar in shown if bar.size is not None), line or 0.0])
    left, right = LEFT // 2 + 10, WIDTH - RIGHT - TOLD

    def x(size: float) -> int:
        return round(left + (size - low) / (high - low) * (right - left))

    middles = [FONT_SIZE + BAR_HEIGHT * (number + 0.5) for number in range(len(shown))]
    for bar, middle in zip(shown, middles, strict=True):
        start, end = sorted((x(0.0), x(bar.size or 0.0)))
        is_above = line is None or (bar.size or 0.0) > line
        if bar.size:
            fill = BLUE if is_above else LIGHT_BLUE
            draw.rectangle([start, middle - 18, end, middle + 18], fill=fill)
    if line is not None:
        bottom = BAR_HEIGHT * len(shown) + FONT_SIZE
        draw.line([(x(line), FONT_SIZE // 2), (x(line), bottom)], fill=RED, width=4)
    for bar, middle in zip(shown, middles, strict=True):
        end = max(x(0.0), x(bar.size or 0.0)) + 10
        draw.text((left - 10, middle), bar.label, fill=INK, font=font, anchor="rm")
        draw.text((end, middle), bar.told, fill=INK, font=font, anchor="lm")
    return _png(image)


def _png(image: Any) -> bytes:  # noqa: ANN401  Pillow is imported late
    from PIL import Image

    held = BytesIO()
    image.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        held, "PNG", compress_level=9
    )
    return held.getvalue()
