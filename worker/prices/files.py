"""Files of overrides (TOML or CSV) and of currency rates (CSV): read whole, or refused whole.

Every fault is named with its place, so that a file is put right in one go. Amounts are
read as Decimal from their text, never as float.
"""

from __future__ import annotations

import csv
import io
import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from worker.errors import UsageError
from worker.prices.shape import ALWAYS, BATCH, STANDARD, Price, Rate, RefusedFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MAX_BYTES: Final = 16_000_000
MAX_ROWS: Final = 100_000
MAX_NAME_LETTERS: Final = 200
MAX_AMOUNT: Final = Decimal(1_000_000_000)
MAX_DECIMALS: Final = 12
MAX_INPUT_ABOVE: Final = 10**12

PRICE_KEYS: Final = (
    "model", "provider", "processing", "valid_from", "input_above",
    "currency", "input", "cached_input", "output",
)  # fmt: skip
_NEEDED: Final = ("model", "currency", "input", "output")
RATE_KEYS: Final = ("currency", "date", "rate")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
_Row = tuple[str, dict[str, Any]]  # its place in the file, and its values


def read_prices(path: Path) -> tuple[Price, ...]:
    """The overrides of a .toml or .csv file. Raises UsageError, RefusedFileError."""
    suffix = path.suffix.lower()
    if suffix not in {".toml", ".csv"}:
        raise UsageError(f"{path}: a file of prices ends in .toml or .csv")
    text = _text(path)
    found = _Faults(path)
    rows = list(_toml_rows(path, text) if suffix == ".toml" else _csv_rows(path, text, PRICE_KEYS))
    places: dict[tuple[Any, ...], str] = {}
    bases: set[tuple[Any, ...]] = set()
    prices: list[Price] = []
    for place, row in rows:
        price = _price(row, found.at(place))
        if price is None:
            continue
        group = (price.model, price.provider, price.processing, price.valid_from)
        first = places.setdefault((*group, price.input_above), place)
        if first != place:
            found.add(place, f"says the same as {first} once more: keep one of them")
        if price.input_above == 0:
            bases.add(group)
        prices.append(price)
    for (*start, above), place in places.items():
        if above and tuple(start) not in bases:
            found.add(place, f"input_above {above} has no row with input_above 0 beside it")
    found.refuse()
    return tuple(prices)


def read_rates(path: Path, billing_currency: str) -> tuple[Rate, ...]:
    """The rates of a .csv file. Raises UsageError, RefusedFileError."""
    found = _Faults(path)
    places: dict[tuple[str, str], str] = {}
    rates: list[Rate] = []
    for place, row in _csv_rows(path, _text(path), RATE_KEYS):
        fault = found.at(place)
        currency = _currency(row.get("currency"), fault)
        day = _day(row.get("date"), fault)
        rate = _amount("rate", row.get("rate"), fault)
        if currency == billing_currency:
            fault(
                f"{currency} is the billing currency itself: it needs no rate; "
                f"a rate is what one unit of another currency costs in {currency}"
            )
        if rate is not None and rate == 0:
            fault("rate must be above 0")
        if currency is None or day is None or rate is None:
            continue
        first = places.setdefault((currency, day), place)
        if first != place:
            fault(f"{currency} of {day} stands in {first} already: keep one of them")
        rates.append(Rate(currency, day, rate))
    if not rates and not found.faults:
        raise UsageError(f"{path}: no rates in it, only a header")
    found.refuse()
    return tuple(rates)


class _Faults:
    """Collects faults with their places."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.faults: list[str] = []

    def add(self, place: str, fault: str) -> None:
        self.faults.append(f"{place}: {fault}")

    def at(self, place: str) -> Callable[[str], None]:
        return lambda fault: self.add(place, fault)

    def refuse(self) -> None:
        """Raises RefusedFileError where there is a fault."""
        if self.faults:
            raise RefusedFileError(str(self._path), self.faults)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: over {MAX_BYTES // 1_000_000} MB: split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}: line {line} is no UTF-8: save the file as UTF-8") from None


def _toml_rows(path: Path, text: str) -> Iterator[_Row]:
    import tomllib

    from worker.configuration.syntax import BrokenSyntaxError, parse

    try:
        parse(text)
    except BrokenSyntaxError as error:
        raise UsageError(f"{path}: {error}") from None
    document = tomllib.loads(text, parse_float=Decimal)
    unknown = sorted(set(document) - {"prices"})
    rows = document.get("prices")
    if unknown or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = f"{unknown[0]!r} is not known: " if unknown else ""
        raise UsageError(f"{path}: {what}write each price as a table [[prices]]")
    if len(rows) > MAX_ROWS:
        raise UsageError(f"{path}: over {MAX_ROWS:,} prices: split it")
    for number, row in enumerate(rows, 1):
        yield f"[[prices]] number {number}", row


def _csv_rows(path: Path, text: str, known: Sequence[str]) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        unknown = [name for name in header if name not in known]
        twice = [name for name in known if header.count(name) > 1]
        missing = [name for name in known if name not in header and name in (*_NEEDED, *RATE_KEYS)]
        if unknown or twice or missing:
            what = (
                f"column {unknown[0]!r} is not known" if unknown
                else f"column {twice[0]} stands twice" if twice
                else f"column {missing[0]} is missing"
            )  # fmt: skip
            raise UsageError(f"{path}: line 1: {what}; the columns are {', '.join(known)}")
        for number, cells in enumerate(reader, 1):
            if number > MAX_ROWS:
                raise UsageError(f"{path}: over {MAX_ROWS:,} rows: split it")
            if not any(cell.strip() for cell in cells):
                continue
            place = f"line {reader.line_num}"
            if len(cells) != len(header):
                raise UsageError(
                    f"{path}: {place} has {len(cells)} cells, and the header {len(header)}"
                )
            row = {k: cell.strip() for k, cell in zip(header, cells, strict=True)}
            yield place, {key: value for key, value in row.items() if value}
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: {error}") from None


def _price(row: dict[str, Any], fault: Callable[[str], None]) -> Price | None:
    """One price, or None after naming what is wrong with it."""
    faults = 0

    def count(text: str) -> None:
        nonlocal faults
        faults += 1
        fault(text)

    for key in row:
        if key not in PRICE_KEYS:
            count(f"{key!r} is not known: the keys are {', '.join(PRICE_KEYS)}")
    for key in _NEEDED:
        if key not in row:
            count(f"{key} is missing")
    model = _name(row.get("model"), count) if "model" in row else None
    currency = _currency(row["currency"], count) if "currency" in row else None
    amounts = {
        key: _amount(key, row[key], count) if key in row else None
        for key in ("input", "cached_input", "output")
    }
    provider = row.get("provider", "")
    if provider != "" and not (isinstance(provider, str) and _PROVIDER.fullmatch(provider.lower())):
        count("provider is a short name such as openai: letters, digits, . _ and -")
    processing = row.get("processing", STANDARD)
    if processing not in {STANDARD, BATCH}:
        count(f"processing is {STANDARD} or {BATCH}")
    since = _since(row.get("valid_from"), count)
    above = _above(row.get("input_above", 0), count)
    if faults or model is None or currency is None:
        return None
    return Price(
        model=model,
        currency=currency,
        input=amounts["input"],
        cached_input=amounts["cached_input"],
        output=amounts["output"],
        provider=str(provider).lower(),
        processing=processing,
        valid_from=since,
        input_above=above,
    )


def _name(value: Any, fault: Callable[[str], None]) -> str | None:  # noqa: ANN401  a file's value
    if not isinstance(value, str) or not value.strip():
        fault("model must be a name")
    elif len(value) > MAX_NAME_LETTERS or _CONTROL.search(value):
        fault(f"model is at most {MAX_NAME_LETTERS} letters, none of them a control character")
    elif value.lower().endswith(":batch"):
        fault('model goes without ":batch": say processing = batch')
    else:
        return value.strip().lower()
    return None


def _currency(value: Any, fault: Callable[[str], None]) -> str | None:  # noqa: ANN401
    if isinstance(value, str) and _CURRENCY.fullmatch(value):
        return value
    fault("currency is three capital letters, such as USD")
    return None


def _amount(key: str, value: Any, fault: Callable[[str], None]) -> Decimal | None:  # noqa: ANN401
    """An amount from 0 up, exactly as it is written."""
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        fault(f"{key} must be a number")
        return None
    text = str(value)
    try:
        amount = Decimal(text) if _AMOUNT.fullmatch(text) else None
    except InvalidOperation:
        amount = None
    if amount is None:
        fault(f"{key} must be a number from 0 up, with a point before its decimals")
        return None
    exponent = amount.normalize().as_tuple().exponent
    if amount > MAX_AMOUNT or (isinstance(exponent, int) and -exponent > MAX_DECIMALS):
        fault(f"{key} is at most {MAX_AMOUNT:,}, with at most {MAX_DECIMALS} decimals")
        return None
    return amount


def _above(value: Any, fault: Callable[[str], None]) -> int:  # noqa: ANN401  a file's value
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,13}", text):
        fault("input_above is a whole number of tokens")
    elif int(text) > MAX_INPUT_ABOVE:
        fault(f"input_above is at most {MAX_INPUT_ABOVE:,}")
    else:
        return int(text)
    return 0


def _day(value: Any, fault: Callable[[str], None]) -> str | None:  # noqa: ANN401  a file's value
    try:
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
            day = date.fromisoformat(value)
            if 2000 <= day.year < 2200:  # noqa: PLR2004  the ledger's own bounds
                return value
    except ValueError:
        pass
    fault("date is a day such as 2026-11-30, from 2000 to 2199")
    return None


def _since(value: Any, fault: Callable[[str], None]) -> str:  # noqa: ANN401  a file's value
    """A billing day, or a time with its offset; -infinity where nothing is said."""
    if value is None:
        return ALWAYS
    text = value.isoformat() if isinstance(value, (datetime, date)) else value
    try:
        if isinstance(text, str):
            if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
                moment = datetime.combine(date.fromisoformat(text), time(0))
            else:
                moment = datetime.fromisoformat(text)
                if moment.tzinfo is None:
                    fault("valid_from: a time needs its offset, such as 2026-11-01T00:00:00+08:00")
                    return ALWAYS
                text = moment.isoformat()
            if 2000 <= moment.year < 2200:  # noqa: PLR2004  the ledger's own bounds
                return text
    except ValueError:
        pass
    fault("valid_from is a day such as 2026-11-01, or a time with its offset")
    return ALWAYS
