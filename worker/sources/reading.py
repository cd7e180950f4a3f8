"""Reads what a source told of one request: figures that the ledger can take, or why not. Pure.

Nothing is guessed: a figure that isn't whole, is negative or beyond the contract's bounds
makes its answer unusable. Costs are exact: a text or a number of JSON is read as a decimal,
a binary float of a database as the shortest decimal that means it.
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from worker.telemetry import redact
from worker.untrusted import visible
from worker.usage import FaultReason, OverdueRequest, SourceFault, ToldUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Source: the contract's bounds of one call.
TOKENS_MAX: Final = 10**12
ID_MAX_LETTERS: Final = 200
# Of a cost in any currency; the ledger judges it in nanos once it is converted.
COST_MAX: Final = Decimal(10**12)
COST_DECIMALS: Final = Decimal("1e-15")
COST_DIGITS: Final = 40
EXCERPT_LETTERS: Final = 300
# So many letters of a text are looked at for an excerpt.
LOOKED_AT_LETTERS: Final = 2000
# Figures are short: no digits without end, and no exponent that spells them.
DIGITS_MAX: Final = 400
VALUE_LETTERS: Final = 60
FLOAT_WHOLE_MAX: Final = 2.0**53
_COST: Final = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
# and halves of letters, which JSON may hold and a database can't
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class UnusableAnswerError(Exception):
    """Why an answer can't be used: its reason, and a line for people."""

    def __init__(self, reason: FaultReason, words: str) -> None:
        super().__init__(words)
        self.reason = reason


class Reading(NamedTuple):
    """A usage, and what was left out of it: a fault with its cost."""

    usage: ToldUsage
    cost_fault: SourceFault | None = None


class Reader:
    """Reads the answers of one source. `secrets` are never shown in an excerpt."""

    def __init__(self, source: str, currency: str | None, secrets: Iterable[str]) -> None:
        """`currency` holds where an answer names none; None: the billing currency."""
        self._source = source
        self._currency = currency
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)

    def read(self, request: OverdueRequest, told: Mapping[str, object]) -> Reading | None:
        """The usage in what was told, by our words; None: there is none yet.

        Raises UnusableAnswerError.
        """
        if told.get("in_tokens") is None and told.get("out_tokens") is None:
            return None
        tokens = {word: _tokens(word, told.get(word)) for word in ("in_tokens", "out_tokens")}
        cached = told.get("cached_in_tokens")
        cached_in_tokens = None if cached is None else _tokens("cached_in_tokens", cached)
        if cached_in_tokens is not None and cached_in_tokens > tokens["in_tokens"]:
            raise UnusableAnswerError(
                FaultReason.WRONG_NUMBER,
                f"cached_in_tokens is {cached_in_tokens}, more than in_tokens "
                f"{tokens['in_tokens']}, which they are a part of",
            )
        cost, currency, fault = self._cost(told)
        usage = ToldUsage(
            tenant_id=request.tenant_id,
            request_id=request.request_id,
            usage_id=_identity("usage_id", told.get("usage_id")) or self._stable_id(request),
            in_tokens=tokens["in_tokens"],
            out_tokens=tokens["out_tokens"],
            cached_in_tokens=cached_in_tokens,
            cost=cost,
            currency=currency,
            model=_identity("model", told.get("model")),
        )
        if fault is None:
            return Reading(usage)
        return Reading(usage, self.fault(request, FaultReason.UNKNOWN_CURRENCY, fault))

    def fault(self, request: OverdueRequest, reason: FaultReason, words: str) -> SourceFault:
        """An answer set aside under the request that was asked for."""
        return SourceFault(request.tenant_id, request.request_id, reason, self.excerpt(words))

    def excerpt(self, words: str) -> str:
        """The words on one short line, without any secret."""
        text = " ".join(words[:LOOKED_AT_LETTERS].split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = redact(text)
        if len(words) > LOOKED_AT_LETTERS:
            # it may end within a secret
            cut = max(map(len, self._secrets), default=0)
            text = text[: len(text) - min(cut, len(text))]
            text = (text.rpartition(" ")[0] or text) + "…"
        shown = visible(text[: EXCERPT_LETTERS + 1])
        return shown if len(shown) <= EXCERPT_LETTERS else shown[: EXCERPT_LETTERS - 1] + "…"

    def _cost(self, told: Mapping[str, object]) -> tuple[Decimal | None, str | None, str | None]:
        """The cost, its currency, and what is wrong with that: the cost is left out then."""
        cost = None
        if (value := told.get("cost")) is not None:
            cost = _amount("cost", value)
        elif (value := told.get("cost_nanos")) is not None:
            cost = _amount("cost_nanos", value).scaleb(-9)
        if cost is None:
            return None, None, None
        named = told.get("currency")
        if named is None or named == "":
            return cost, self._currency, None
        currency = named.strip().upper() if isinstance(named, str) else ""
        if _CURRENCY.fullmatch(currency) is None:
            return None, None, f"currency is {_shown(named)}: settled without its cost"
        return cost, currency, None

    def _stable_id(self, request: OverdueRequest) -> str:
        """The same for the same source and request, so that a repeat changes nothing."""
        parts = f"{self._source}\x1f{request.tenant_id}\x1f{request.request_id}"
        return "source-" + hashlib.sha256(parts.encode()).hexdigest()[:32]


def name_of(value: object) -> str | None:
    """An id as the source has it, as a text; None where it is none."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | float | bytes | list | dict):
        return None
    return str(value)


def _identity(word: str, value: object) -> str | None:
    if value is None or value == "":
        return None
    name = name_of(value)
    if name is None or len(name) > ID_MAX_LETTERS or _CONTROL.search(name):
        raise UnusableAnswerError(
            FaultReason.WRONG_ID,
            f"{word} is {_shown(value)}: a text of at most {ID_MAX_LETTERS} characters is needed",
        )
    return name


def _tokens(word: str, value: object) -> int:
    if value is None:
        raise UnusableAnswerError(
            FaultReason.MISSING_FIGURE, f"{word} is missing, and the other figure is there"
        )
    whole: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        whole = value if abs(value) <= TOKENS_MAX else TOKENS_MAX + 1
    elif isinstance(value, Decimal) and _is_short(value):
        if abs(value) > TOKENS_MAX:
            whole = TOKENS_MAX + 1
        elif value == value.to_integral_value():
            whole = int(value)
    elif isinstance(value, float) and abs(value) <= FLOAT_WHOLE_MAX and value.is_integer():
        whole = int(value)
    if whole is None or not 0 <= whole <= TOKENS_MAX:
        raise UnusableAnswerError(
            FaultReason.WRONG_NUMBER,
            f"{word} is {_shown(value)}: a whole number from 0 to 10^12 is needed",
        )
    return whole


def _amount(word: str, value: object) -> Decimal:
    amount: Decimal | None = None
    if isinstance(value, Decimal):
        amount = value if _is_short(value) else None
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = Decimal(value) if abs(value) <= 10**18 else None
    elif isinstance(value, float):
        amount = Decimal(repr(value))
    elif isinstance(value, str) and _COST.fullmatch(value.strip()):
        amount = Decimal(value.strip())
    most = COST_MAX.scaleb(9) if word == "cost_nanos" else COST_MAX
    good = amount is not None and _is_short(amount) and 0 <= amount <= most
    if amount is None or not good or (word == "cost_nanos" and amount % 1 != 0):
        kind = "a whole number of nanos" if word == "cost_nanos" else "an amount from 0 to 10^12"
        raise UnusableAnswerError(
            FaultReason.WRONG_NUMBER, f"{word} is {_shown(value)}: {kind} is needed"
        )
    with localcontext() as context:
        context.prec = COST_DIGITS
        # what lies beyond 15 decimals is a float's noise: a nano has 9
        return amount.quantize(COST_DECIMALS) if word == "cost" else Decimal(int(amount))


def _is_short(value: Decimal) -> bool:
    """Whether it is finite, and written out has a bounded number of digits."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and len(digits) <= DIGITS_MAX and abs(exponent) <= DIGITS_MAX


def _shown(value: object) -> str:
    """A value with its type, short."""
    if isinstance(value, str):
        return f"the text {value[:VALUE_LETTERS]!r}"
    if isinstance(value, bool | list | dict | bytes):
        kinds = {bool: "true or false", list: "a list", dict: "an object", bytes: "binary data"}
        return kinds[type(value)]
    if isinstance(value, int) and abs(value) > 10**VALUE_LETTERS:
        return "a number of more than 60 digits"
    return str(value)[:VALUE_LETTERS]
