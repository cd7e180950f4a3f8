"""What usage sources are asked and what they answer: frozen values between the rooms. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal


class OverdueRequest(NamedTuple):
    """An open reservation whose time ran out at ``expires_at``, and which has no usage yet."""

    tenant_id: str
    request_id: str
    expires_at: datetime


class ToldUsage(NamedTuple):
    """A request's usage as a source told it, checked.

    Tokens are whole and within the contract's bounds, ``cached_in_tokens`` a part of
    ``in_tokens``. ``cost`` is in units of ``currency`` (None: the billing currency), None
    where it is unknown.
    """

    tenant_id: str
    request_id: str
    usage_id: str
    in_tokens: int
    out_tokens: int
    cached_in_tokens: int | None = None
    cost: Decimal | None = None
    currency: str | None = None
    model: str | None = None


class FaultReason(StrEnum):
    """Why an answer, or its cost, was set aside: the closed set of ``quota_source_faults``.

    The ledger adds ``conflict``, ``no_rate``, and ``invalid`` of its own.
    """

    OTHER_TENANT = "other_tenant"
    NOT_ASKED = "not_asked"
    NOT_UNIQUE = "not_unique"
    CONTRADICTION = "contradiction"
    WRONG_NUMBER = "wrong_number"
    MISSING_FIGURE = "missing_figure"
    WRONG_ID = "wrong_id"
    UNKNOWN_CURRENCY = "unknown_currency"
    UNREADABLE = "unreadable"
    INVALID = "invalid"


class SourceFault(NamedTuple):
    """An answer that was set aside; ``excerpt`` is one short line without any secret."""

    tenant_id: str
    request_id: str
    reason: FaultReason
    excerpt: str


class SourceCause(StrEnum):
    """Why a source could not be asked, or gave no answer."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    LOGIN_REFUSED = "login_refused"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REJECTED = "rejected"
    UNKNOWN_ANSWER = "unknown_answer"
    TOO_LARGE = "too_large"
    QUERY_FAILED = "query_failed"
    WRONG_COLUMNS = "wrong_columns"


class SourceTrouble(NamedTuple):
    """One failure to get an answer: plain words without any secret, and what to do about it.

    ``answered``: there was an answer, unreadable, which is set aside by name as well.
    """

    cause: SourceCause
    detail: str
    cure: str = ""
    answered: bool = False


class SourceFailure(NamedTuple):
    """How often in one run a source failed for one cause, with the last one's words."""

    source: str
    cause: str
    times: int
    detail: str
    cure: str


class SourcesNotSet(NamedTuple):
    """Usage sources were asked lately, and this process knows of none: it leaves to them."""

    detail: str
    cure: str
    cause: str = "sources_not_set"


class SourceAnswer(NamedTuple):
    """What came of asking one source for several requests.

    ``asked``: those that it was asked for, whatever came of it. ``not_yet``: those of them
    that it knows, without usage so far. ``set_aside`` counts the answers that were,
    ``faults`` names the first of them. ``is_down``: it isn't worth asking again in this run.
    """

    asked: tuple[OverdueRequest, ...] = ()
    usages: tuple[ToldUsage, ...] = ()
    not_yet: tuple[OverdueRequest, ...] = ()
    faults: tuple[SourceFault, ...] = ()
    set_aside: int = 0
    troubles: tuple[SourceTrouble, ...] = ()
    is_down: bool = False
