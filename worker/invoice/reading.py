"""Reads an export in one pass and adds it up by day and model; memory doesn't grow with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import time
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.invoice.columns import column_place, find_places
from worker.invoice.figures import CACHED, COST, INPUT, OUTPUT, TOKENS
from worker.invoice.names import fits
from worker.invoice.table import open_table
from worker.invoice.values import Numbers, check_sign, parse_stamp
from worker.periods import month_of
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from worker.invoice.columns import Places
    from worker.invoice.values import Stamp

MAX_CELLS: Final = 200_000
MAX_SHOWN_FAULTS: Final = 20
MAX_MODEL_LETTERS: Final = 200
_KEPT_STAMPS: Final = 4_096
PRECISION: Final = 60
_CURRENCY_LETTERS: Final = 3
_FREE: Final = Decimal(0)

DAYS: Final = "days"  # the export has days of its zone
LOCAL: Final = "times"  # times of its zone
MOMENTS: Final = "moments"  # times that name their own offset


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """How a file is to be read. ``billing`` is the ledger's zone, ``zone`` the export's.

    ``currency``: of rows that name none, None: the export's own, else ``billing_currency``.
    ``where``: (column, pattern) that rows must fit.
    """

    month: date
    billing: ZoneInfo
    zone: ZoneInfo
    billing_currency: str
    currency: str | None = None
    columns: dict[str, tuple[str, ...]] | None = None
    decimal: str | None = None
    slashed: str | None = None
    where: Sequence[tuple[str, str]] = ()


@dataclass(slots=True)
class _Sum:
    """What is added up of one day, model and currency.

    Where the export has TOKENS alone, ``in_tokens`` are all of them.
    """

    rows: int = 0
    in_tokens: int = 0
    cached: int = 0
    out_tokens: int = 0
    cost: Decimal = Decimal(0)


# the day in the export's zone, the billing day, the model as written, the currency
_Key = tuple["date", "date", str, str]


@dataclass(frozen=True, slots=True)
class Tally:
    """A file added up: ``sums`` by day, model as written and currency, of the month alone.

    ``kind``: DAYS, LOCAL or MOMENTS. ``outside``: rows of other months; ``blank``: rows without
    any amount; ``unlike``: rows that --where left out. ``by_zone``: its days are those of the
    export's zone, else billing days.
    """

    export: str
    kind: str
    measures: frozenset[str]
    rows: int
    outside: int
    blank: int
    unlike: int
    sums: dict[tuple[date, str, str], _Sum]
    by_zone: bool = False


@dataclass(frozen=True, slots=True)
class _When:
    """When a row is of: ``label``, its day in the export's zone, and ``day``, its billing day.

    ``label_in``, ``day_in``: whether these are of the month.
    """

    label: date
    day: date
    label_in: bool
    day_in: bool
    sure: bool
    midnight: bool


@dataclass(slots=True)
class _Reader:
    """One pass over one file."""

    places: Places
    rules: ReadingRules
    numbers: Numbers
    width: int
    where: list[tuple[int, str]]
    when_of: Callable[[str], _When]
    sums: dict[_Key, _Sum] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)
    broken: int = 0
    doubts: list[tuple[int, str]] = field(default_factory=list)
    doubtful: int = 0
    fitted: set[int] = field(default_factory=set)
    rows: int = 0
    outside: int = 0
    blank: int = 0
    unlike: int = 0
    midnights: bool = True
    sure: bool = True
    labels_in: bool = True
    days_in: bool = True
    first_day: date | None = None
    last_day: date | None = None

    def take(self, line: int, row: list[str]) -> None:
        """Add a row; a broken one is noted, and one whose numbers may be read in two ways."""
        try:
            self._add(row)
        except ValueError as error:
            self.broken += 1
            if len(self.faults) < MAX_SHOWN_FAULTS:
                self.faults.append((line, str(error)))
        else:
            if self.numbers.doubt and not self.numbers.settled:
                self.doubtful += 1
                if len(self.doubts) < MAX_SHOWN_FAULTS:
                    self.doubts.append((line, self.numbers.doubt))
        self.numbers.doubt = ""

    def _add(self, row: list[str]) -> None:
        if len(row) != self.width:
            raise ValueError(f"{len(row)} cells instead of {self.width}")
        places = self.places
        if self.where and not self._fits(row):
            self.unlike += 1
            return
        when = self.when_of(row[places.date])
        in_tokens, out_tokens = self._split(row)
        cached = self._tokens(row, places.cached)
        cost = self._cost(row)
        if cost is None:
            self.blank += 1
            return
        model = self._model(row)
        currency = self._currency(row)
        if places.cost is not None:
            check_sign(row[places.cost], currency)
        self.rows += 1
        self.sure &= when.sure
        self.midnights &= when.midnight
        self.labels_in &= when.label_in
        self.days_in &= when.day_in
        if not (when.label_in or when.day_in):
            self._leave_out(when.day)
            return
        key = (when.label, when.day, model, currency)
        found = self.sums.get(key)
        if found is None:
            if len(self.sums) >= MAX_CELLS:
                raise UsageError(
                    f"more than {MAX_CELLS:,} days and models: is the column of models the right"
                    " one? Say with --columns which it is"
                )
            found = self.sums[key] = _Sum()
        found.rows += 1
        found.in_tokens += in_tokens
        found.cached += cached
        found.out_tokens += out_tokens
        found.cost += cost

    def _fits(self, row: list[str]) -> bool:
        found = [
            number
            for number, (place, pattern) in enumerate(self.where)
            if fits(row[place].strip().casefold(), pattern)
        ]
        self.fitted.update(found)
        return len(found) == len(self.where)

    def _split(self, row: list[str]) -> tuple[int, int]:
        """Input and output; what has no column is the rest of all tokens."""
        places = self.places
        in_tokens = self._tokens(row, places.input)
        out_tokens = self._tokens(row, places.output)
        if not places.tokens or (places.input and places.output):
            return in_tokens, out_tokens
        rest = self._tokens(row, places.tokens) - in_tokens - out_tokens
        if rest < 0:
            raise ValueError("the tokens are fewer than their input or output")
        return (in_tokens, rest) if places.input else (rest, out_tokens)

    def _leave_out(self, day: date, rows: int = 1) -> None:
        self.outside += rows
        self.first_day = min(self.first_day or day, day)
        self.last_day = max(self.last_day or day, day)

    def _tokens(self, row: list[str], places: tuple[int, ...]) -> int:
        found = 0
        for place in places:
            if text := row[place]:
                found += self.numbers.count(text)
        return found

    def _cost(self, row: list[str]) -> Decimal | None:
        """The row's cost, 0 where the export has none; None: the row has no amount at all."""
        places = self.places
        if places.cost is not None and row[places.cost].strip():
            return self.numbers.amount(row[places.cost])
        if any(row[one].strip() for one in places.counts()):
            if places.cost is not None:
                raise ValueError("the cost is empty")
            return _FREE
        return None

    def _model(self, row: list[str]) -> str:
        if self.places.model is None:
            return ""
        name = row[self.places.model].strip()
        if self.places.cut:
            name = name.partition(",")[0].strip()
        if len(name) > MAX_MODEL_LETTERS:
            raise ValueError(f"a model's name has more than {MAX_MODEL_LETTERS} letters")
        return name

    def _currency(self, row: list[str]) -> str:
        places, rules = self.places, self.rules
        if places.cost is None:
            return rules.billing_currency
        written = "" if places.currency is None else row[places.currency].strip()
        if not written:
            return rules.currency or places.fixed_currency or rules.billing_currency
        code = written.upper()
        if len(code) != _CURRENCY_LETTERS or not (code.isascii() and code.isalpha()):
            raise ValueError(f"'{clipped(visible(written))}' is no currency like USD")
        return code

    def tally(self) -> Tally:
        """What was added up, by the days that the export counts. Raises UsageError.

        Times are put on billing days, unless all rows are of the month in the export's zone and
        some are not in the billing zone: that is what an export of the zone's month looks like.
        """
        kind = DAYS if self.midnights else MOMENTS if self.sure else LOCAL
        by_zone = kind == DAYS or (self.labels_in and not self.days_in)
        sums: dict[tuple[date, str, str], _Sum] = {}
        for (label, day, model, currency), one in self.sums.items():
            chosen = label if by_zone else day
            if month_of(chosen) != self.rules.month:
                self._leave_out(chosen, one.rows)
                continue
            kept = sums.setdefault((chosen, model, currency), _Sum())
            kept.in_tokens += one.in_tokens
            kept.cached += one.cached
            kept.out_tokens += one.out_tokens
            kept.cost += one.cost
        if not sums:
            raise UsageError(self._nothing())
        places = self.places
        split = bool(places.input or places.output)
        both = split and bool(places.tokens)
        measures = {
            measure
            for measure, there in (
                (INPUT, places.input or both),
                (CACHED, places.cached),
                (OUTPUT, places.output or both),
                (TOKENS, places.tokens and not split),
                (COST, places.cost is not None),
            )
            if there
        }
        counts = (self.rows, self.outside, self.blank, self.unlike)
        return Tally(places.export, kind, frozenset(measures), *counts, sums, by_zone)

    def _nothing(self) -> str:
        month = f"{self.rules.month:%Y-%m}"
        if self.first_day is None:
            left = f", {self.unlike:,} that --where leaves out" if self.unlike else ""
            return f"the file has no row with an amount{left}: nothing to compare with {month}"
        return (
            f"no row of the file lies in {month}: its days go from {self.first_day}"
            f" to {self.last_day}"
        )


def read_export(path: Path, rules: ReadingRules) -> Tally:
    """The whole file added up.

    Raises UsageError for what can't be read, an unknown header, no row of the month, and for
    broken rows: the first 20 with their lines, and how many there are.
    """
    with open_table(path) as table, localcontext() as context:
        context.prec = PRECISION
        places = find_places(table.header, rules.columns)
        slashed = rules.slashed or places.slashed

        @lru_cache(maxsize=_KEPT_STAMPS)
        def when_of(text: str) -> _When:
            return _when(parse_stamp(text, rules.zone, slashed), rules)

        reader = _Reader(
            places=places,
            rules=rules,
            numbers=Numbers(rules.decimal, doubtful=table.delimiter != ","),
            width=len(table.header),
            where=[
                (column_place(table.header, column, "--where"), pattern)
                for column, pattern in rules.where
            ],
            when_of=when_of,
        )
        for line, row in table.rows:
            reader.take(line, row)
        lost = [one for number, one in enumerate(rules.where) if number not in reader.fitted]
        if lost and not reader.broken:
            raise UsageError(_unfitted(lost))
        if reader.numbers.settled:
            reader.doubts, reader.doubtful = [], 0
        if reader.broken or reader.doubtful:
            raise UsageError(_refusal(path, reader))
        return reader.tally()


def _when(stamp: Stamp, rules: ReadingRules) -> _When:
    moment, day = stamp.moment, stamp.day
    midnight = True
    if moment is not None:
        midnight = moment.astimezone(rules.zone).time() == time()
        day = moment.astimezone(rules.billing).date()
    label_in, day_in = (month_of(one) == rules.month for one in (stamp.day, day))
    return _When(stamp.day, day, label_in, day_in, stamp.sure, midnight)


def _unfitted(lost: Sequence[tuple[str, str]]) -> str:
    faults = [
        f"--where {clipped(visible(f'{column}={pattern}'))} fits no row of the file"
        for column, pattern in lost
    ]
    return "\n".join([f"{faults[0]}: nothing was compared", *faults[1:]])


def _refusal(path: Path, reader: _Reader) -> str:
    name, count = clipped(visible(path.name)), reader.broken + reader.doubtful
    shown = sorted(reader.faults + reader.doubts)[:MAX_SHOWN_FAULTS]
    rows = "row is" if count == 1 else "rows are"
    kind = "broken" if reader.broken else "in doubt"
    lines = [f"{name}: {count:,} {rows} {kind}, nothing was compared"]
    lines += [f"line {line}: {fault}" for line, fault in shown]
    more = count - len(shown)
    return "\n".join(lines + ([f"… and {more:,} more"] if more else []))
