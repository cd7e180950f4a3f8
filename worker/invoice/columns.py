"""Which columns of a provider's export mean what: known exports by their header, others by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_HAND: Final = "--columns"
MAX_SHOWN_COLUMNS: Final = 40
KEYS: Final = ("date", "model", "input", "output", "cached", "tokens", "cost", "currency")
_SUMMED: Final = frozenset({"input", "output", "cached", "tokens"})
_COMPARED: Final = ("input", "output", "tokens", "cost")
_BY_PLACE: Final = re.compile(r"#([1-9]\d{0,4})", re.ASCII)
_PAIR: Final = re.compile(rf"(?:^|,)\s*({'|'.join(KEYS)})\s*=")


@dataclass(frozen=True, slots=True)
class Export:
    """A known export, recognised where all ``marks`` stand in its header.

    ``columns``: for each key the names that may hold it; of input, output and cached all that
    are there are added up, of the others the first counts. ``apart``: the input doesn't include
    what was cached, so that both are added. ``currency``: of its costs, where no column says.
    ``cut``: the model ends at a comma. ``slashed``: how a date with slashes is meant.
    """

    name: str
    marks: frozenset[str]
    columns: dict[str, tuple[str, ...]]
    currency: str | None = None
    cut: bool = False
    slashed: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where the columns of a file stand, counted from 0; empty or None: it has none."""

    export: str
    date: int
    model: int | None
    input: tuple[int, ...]
    output: tuple[int, ...]
    cached: tuple[int, ...]
    tokens: tuple[int, ...]
    cost: int | None
    currency: int | None
    fixed_currency: str | None
    cut: bool
    slashed: str | None

    def counts(self) -> tuple[int, ...]:
        """Those that hold tokens."""
        return (*self.input, *self.output, *self.cached, *self.tokens)


def _export(name: str, marks: str, *, slashed: str | None = None, **more: str | bool) -> Export:
    columns: dict[str, tuple[str, ...]] = {
        key: tuple(str(more[key]).split(" + ")) for key in KEYS if key in more
    }
    fixed = more.get("fixed")
    return Export(
        name,
        frozenset(marks.split(" + ")),
        columns,
        currency=str(fixed) if fixed else None,
        cut=bool(more.get("cut")),
        slashed=slashed,
    )


# As their owners' files have them, see docs/invoice.md; in lower case.
EXPORTS: Final = (
    _export(
        "openai-usage",
        "start_time + num_model_requests + model + input_tokens + output_tokens",
        date="start_time_iso + start_time",
        model="model",
        input="input_tokens",
        cached="input_cached_tokens",
        output="output_tokens",
    ),
    _export(
        "openai-cost",
        "start_time + amount_value + amount_currency",
        date="start_time_iso + start_time",
        model="line_item",
        cost="amount_value",
        currency="amount_currency",
        fixed="USD",
        cut=True,
    ),
    _export(
        "anthropic-usage",
        "usage_date_utc + model_version + usage_input_tokens_no_cache + usage_output_tokens",
        date="usage_date_utc",
        model="model_version",
        input="usage_input_tokens_no_cache + usage_input_tokens_cache_write_5m"
        " + usage_input_tokens_cache_write_1h + usage_input_tokens_cache_read",
        cached="usage_input_tokens_cache_read",
        output="usage_output_tokens",
    ),
    _export(
        "anthropic-cost",
        "usage_date_utc + model + token_type + cost_usd",
        date="usage_date_utc",
        model="model",
        cost="cost_usd",
        fixed="USD",
    ),
    _export(
        "openrouter-generations",
        "generation_id + created_at + cost_total + model_permaslug",
        date="created_at",
        model="model_permaslug",
        input="tokens_prompt",
        cached="tokens_cached",
        output="tokens_completion",
        cost="cost_total",
        fixed="USD",
    ),
    _export(
        "openrouter-activity",
        "date + slug + usage + byok usage + prompt tokens + completion tokens",
        date="date",
        model="slug",
        input="prompt tokens",
        output="completion tokens",
        cost="usage",
        fixed="USD",
    ),
    _export(
        "litellm-spend-logs",
        "request_id + starttime + model + spend + prompt_tokens + completion_tokens",
        date="starttime",
        model="model",
        input="prompt_tokens",
        output="completion_tokens",
        cost="spend",
        fixed="USD",
    ),
    _export(
        "azure-cost-details",
        "date + metername + costinbillingcurrency",
        slashed="mdy",
        date="date",
        model="metername",
        cost="costinbillingcurrency",
        currency="billingcurrency + billingcurrencycode",
    ),
    _export(
        "aws-cur",
        "line_item_usage_start_date + line_item_usage_type + line_item_unblended_cost",
        date="line_item_usage_start_date",
        model="line_item_usage_type",
        cost="line_item_unblended_cost",
        currency="line_item_currency_code",
        fixed="USD",
    ),
)

# A file without a vendor's marks whose columns are called what they are: the first name counts.
PLAIN: Final = Export(
    "plain",
    frozenset(),
    {
        "date": ("date", "day", "usage_date", "timestamp", "time"),
        "model": ("model", "model_name", "model_id"),
        "input": ("input_tokens", "prompt_tokens", "in_tokens"),
        "output": ("output_tokens", "completion_tokens", "out_tokens"),
        "cached": (
            "cached_input_tokens",
            "cached_in_tokens",
            "cached_tokens",
            "input_cached_tokens",
        ),
        "tokens": ("tokens", "total_tokens"),
        "cost": ("cost", "cost_usd", "amount", "amount_usd", "total_cost", "spend"),
        "currency": ("currency", "cost_currency", "amount_currency"),
    },
)


def find_places(header: Sequence[str], by_hand: dict[str, tuple[str, ...]] | None) -> Places:
    """Where the columns stand, of a known export or as said by hand.

    Raises UsageError for a header that is neither, or lacks a column, with what it has, and for
    a column that stands twice.
    """
    names = [name.strip().casefold() for name in header]
    if by_hand is not None:
        places = {
            key: tuple(column_place(header, one, BY_HAND) for one in many)
            for key, many in by_hand.items()
        }
        return _places(Export(BY_HAND, frozenset(), by_hand), places)
    for export in EXPORTS:
        if export.marks <= set(names):
            return _places(export, _found(export, header, names))
    # "Input Tokens" is as plain as input_tokens
    names = [re.sub(r"[\s-]+", "_", name) for name in names]
    plain = _plain(names)
    if plain is not None:
        return _places(plain, _found(plain, header, names))
    known = ", ".join(export.name for export in EXPORTS)
    raise UsageError(
        f"the header is that of no known export ({known}): say with --columns"
        f" date=…,model=…,cost=… which columns hold what; {_its(header)}"
    )


def _plain(names: Sequence[str]) -> Export | None:
    """PLAIN with the names that this header has; None: it lacks the date, or what to compare."""
    columns: dict[str, tuple[str, ...]] = {
        key: (next(name for name in wanted if name in names),)
        for key, wanted in PLAIN.columns.items()
        if any(name in names for name in wanted)
    }
    if "date" not in columns or columns.keys().isdisjoint(_COMPARED):
        return None
    dollars = columns.get("cost", ("",))[0].endswith("usd")
    return Export(PLAIN.name, frozenset(), columns, currency="USD" if dollars else None)


def parse_columns(texts: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """``date=Day,model=Model,input=A+B`` as names by key; None: nothing was said.

    Raises UsageError for an unknown key, one that stands twice, or none that can be compared.
    """
    if not texts:
        return None
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        starts = [*_PAIR.finditer(text)]
        if not starts or starts[0].start() != 0:
            raise UsageError(
                f"--columns {_shown(text)} is not like date=NAME,cost=NAME: the keys are"
                f" {', '.join(KEYS)}"
            )
        ends = [one.start() for one in starts[1:]] + [len(text)]
        for one, end in zip(starts, ends, strict=True):
            key, value = one[1], text[one.end() : end].strip()
            if not value or key in found:
                fault = "names no column" if not value else "stands twice"
                raise UsageError(f"--columns: {key} {fault}")
            found[key] = tuple(value.split("+")) if key in _SUMMED else (value,)
    if "date" not in found or found.keys().isdisjoint(_COMPARED):
        needed = ", ".join(f"{key}=…" for key in _COMPARED)
        raise UsageError(f"--columns needs date=…, and at least one of {needed}")
    return found


def column_place(header: Sequence[str], column: str, option: str) -> int:
    """Where a column stands, by its name or as #N by its place, counted from 1.

    Raises UsageError for one that isn't there, and for a name that stands twice.
    """
    wanted = column.strip().casefold()
    places = [place for place, name in enumerate(header) if name.strip().casefold() == wanted]
    if len(places) == 1:
        return places[0]
    if places:
        raise UsageError(
            f"{option}: {_twice(column, places)}: say which by its place, such as #{places[-1] + 1}"
        )
    if (told := _BY_PLACE.fullmatch(wanted)) and int(told[1]) <= len(header):
        return int(told[1]) - 1
    raise UsageError(f"{option}: there is no column {_shown(column)}: {_its(header)}")


def _found(
    export: Export, header: Sequence[str], names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """The places of an export's columns that are there; of those that aren't summed the first."""
    found: dict[str, tuple[int, ...]] = {}
    for key, wanted in export.columns.items():
        there = [name for name in wanted if name in names]
        for name in there if key in _SUMMED else there[:1]:
            places = [place for place, one in enumerate(names) if one == name]
            if len(places) > 1:
                raise UsageError(
                    f"{_twice(header[places[0]], places)}: say all of them with --columns, this one"
                    f" by its place, such as {key}=#{places[-1] + 1}"
                )
            found[key] = (*found.get(key, ()), places[0])
    return found


def _twice(column: str, places: Sequence[int]) -> str:
    which = f"{places[0] + 1} and {places[1] + 1}"
    return f"the columns {which} are both called {_shown(column)}"


def _places(export: Export, there: dict[str, tuple[int, ...]]) -> Places:
    def every(key: str) -> tuple[int, ...]:
        return there.get(key, ())

    def first(key: str) -> int | None:
        return next(iter(every(key)), None)

    return Places(
        export=export.name,
        date=every("date")[0],
        model=first("model"),
        input=every("input"),
        output=every("output"),
        cached=every("cached"),
        tokens=every("tokens"),
        cost=first("cost"),
        currency=first("currency"),
        fixed_currency=export.currency,
        cut=export.cut,
        slashed=export.slashed,
    )


def _its(header: Sequence[str]) -> str:
    shown = ", ".join(_shown(name) for name in header[:MAX_SHOWN_COLUMNS])
    more = len(header) - MAX_SHOWN_COLUMNS
    return f"the file has {shown}{f' and {more} more' if more > 0 else ''}"


def _shown(text: str) -> str:
    return f"{clipped(visible(text))!r}" if not text.strip() else clipped(visible(text))
