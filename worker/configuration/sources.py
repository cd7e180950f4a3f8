"""Reads the usage sources, [sources.NAME], and how long they are asked, [reconcile]."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from worker.configuration.addresses import url_fault
from worker.configuration.document import NAME_FAULT, is_name
from worker.configuration.table import KEEP_OUT, TEXT_MAX_LETTERS, meant, shown
from worker.json_paths import BrokenPathError, parse_path
from worker.settings import WAIT_MINUTES_MAX, AskingSettings, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.configuration.table import Table

KINDS: Final = ("sql", "http")
SOURCES_MAX: Final = 10
QUERY_MAX_LETTERS: Final = 20_000
WAIT_MINUTES: Final = 15
ASK_SECONDS, ASK_SECONDS_MAX = 30, 120
TIME_LIMIT_SECONDS, TIME_LIMIT_SECONDS_MAX = 10, 30
REQUESTS_PER_SECOND, REQUESTS_PER_SECOND_MAX = 5, 100
AT_ONCE, AT_ONCE_MAX = 4, 16
ANSWER_BYTES, ANSWER_BYTES_MIN, ANSWER_BYTES_MAX = 65_536, 1_000, 1_048_576
HEADERS_MAX: Final = 20
STATUS_MIN, STATUS_MAX = 400, 599
NOT_FOUND: Final = (404,)
# Our words for what a source tells; the first three are needed.
NEEDED: Final = ("in_tokens", "out_tokens")
OPTIONAL: Final = ("usage_id", "cached_in_tokens", "cost", "cost_nanos", "currency", "model")
_MONEY: Final = re.compile(r"[A-Z]{3}")
_PARAMETER: Final = re.compile(r"\$([0-9]+)")
_HOLE: Final = re.compile(r"\{([^{}]*)\}")
HOLES: Final = ("tenant_id", "request_id")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)
_SECRET_HEADER: Final = re.compile(
    r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE
)


def read_asking(sources: Table | None, reconcile: Table | None) -> AskingSettings:
    """The sources in the file's order, and the two limits; faults stand in the tables."""
    wait, ask = None, None
    if reconcile is not None:
        wait = reconcile.number("wait_minutes", 0, WAIT_MINUTES_MAX)
        ask = reconcile.number("ask_seconds", 1, ASK_SECONDS_MAX)
        reconcile.finish()
    found: list[SourceSettings] = []
    names = [] if sources is None else sources.names()
    for name in names:
        if sources is None:  # only for the types: there would be no names
            break
        if not is_name(name):
            sources.fault(name, NAME_FAULT)
        table = sources.table(name)
        source = None if table is None else _source(name, table)
        if source is not None:
            found.append(source)
    if sources is not None and len(names) > SOURCES_MAX:
        sources.fault(names[SOURCES_MAX], f"is one too many: at most {SOURCES_MAX} sources")
    return AskingSettings(
        tuple(found),
        60 * (WAIT_MINUTES if wait is None else wait),
        ASK_SECONDS if ask is None else ask,
    )


def _source(name: str, table: Table) -> SourceSettings | None:
    kind = table.text("kind", needed=f"one of {', '.join(KINDS)}")
    if kind is None:
        return None
    if kind not in _READERS:
        table.fault("kind", f"is {shown(kind)}, which there is not: {meant(kind, KINDS)}")
        return None
    shared = {
        "unique_ids": table.flag("unique_ids"),
        "currency": _currency(table),
        "time_limit_seconds": table.number("time_limit_seconds", 1, TIME_LIMIT_SECONDS_MAX)
        or TIME_LIMIT_SECONDS,
    }
    values, words = _READERS[kind](table, shared)
    table.finish()
    return SourceSettings(name, kind, shared | values, words)


def _currency(table: Table) -> str | None:
    currency = table.text("currency")
    if currency is not None and _MONEY.fullmatch(currency) is None:
        table.fault("currency", f"is {shown(currency)}: three capitals are needed, such as USD")
        return None
    return currency


def _sql(table: Table, shared: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    dsn = table.secret("dsn")
    if dsn is not None and not dsn.startswith(("postgresql://", "postgres://")):
        # no user@ in the example: messages are redacted, and it would be eaten
        table.fault(
            "dsn",
            "leads to no address: one such as postgresql://host:5432/database?user=name is needed",
        )
    needed = 'one such as "SELECT … WHERE request_id = ANY($1::text[])"'
    query = table.lines("query", QUERY_MAX_LETTERS, needed=needed)
    numbers = set(map(int, _PARAMETER.findall(query or "$1")))
    if 1 not in numbers or not numbers <= {1, 2}:
        table.fault(
            "query",
            "asks for other things than $1, the request ids, and $2, their tenants: write "
            "WHERE request_id = ANY($1::text[])",
        )
    words: dict[str, Any] = {}
    columns = table.table("columns")
    if columns is None:
        if not table.has("columns"):
            table.missing("columns", "name the query's columns, as [sources.NAME.columns]")
    else:
        words = {
            word: column
            for word in ("request_id", "tenant_id", *NEEDED, *OPTIONAL)
            if (column := columns.text(word, needed=_needed_column(word, shared))) is not None
        }
        _one_cost(columns, words)
        columns.finish()
    return {"dsn": dsn, "query": query, "tenants": bool(numbers - {1})}, words


def _needed_column(word: str, shared: Mapping[str, Any]) -> str | None:
    if word == "tenant_id" and not shared["unique_ids"]:
        return "the column of the tenant, or unique_ids = true where no two tenants share an id"
    return "the column that holds it" if word in {"request_id", *NEEDED} else None


def _one_cost(table: Table, words: Mapping[str, Any]) -> None:
    if "cost" in words and "cost_nanos" in words:
        table.fault("cost_nanos", "stands beside cost: leave one of the two out")


def _http(table: Table, shared: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    words: dict[str, Any] = {}
    paths = table.table("paths")
    if paths is None:
        if not table.has("paths"):
            table.missing("paths", "say where the figures stand, as [sources.NAME.paths]")
    else:
        for word in ("request_id", "tenant_id", *NEEDED, *OPTIONAL):
            needed = "such as usage.prompt_tokens" if word in NEEDED else None
            if (text := paths.text(word, needed=needed)) is not None:
                try:
                    words[word] = parse_path(text)
                except BrokenPathError as error:
                    paths.fault(word, str(error))
        _one_cost(paths, words)
        paths.finish()
    url = table.secret("url", needed=True, literal=True)
    tells_tenant = shared["unique_ids"] or "tenant_id" in words
    if url is not None and (fault := _template_fault(url, tells_tenant=tells_tenant)):
        table.fault("url", fault)
    elif url is not None and table.is_text("url") and "@" in url.split("/")[2]:
        table.fault("url", f"holds a login before the host's name: {KEEP_OUT}")
    values = {
        "url": url,
        "headers": _headers(table.table("headers")),
        "not_found": table.numbers("not_found", STATUS_MIN, STATUS_MAX, "[404, 410]") or NOT_FOUND,
        "requests_per_second": table.number("requests_per_second", 1, REQUESTS_PER_SECOND_MAX)
        or REQUESTS_PER_SECOND,
        "at_once": table.number("at_once", 1, AT_ONCE_MAX) or AT_ONCE,
        "answer_max_bytes": table.number("answer_max_bytes", ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
        or ANSWER_BYTES,
    }
    return values, words


def _template_fault(url: str, *, tells_tenant: bool) -> str | None:
    holes = _HOLE.findall(url)
    filled = _HOLE.sub("x", url)
    if not set(holes) <= set(HOLES) or "{" in filled or "}" in filled:
        return "holds other { } than {tenant_id} and {request_id}: write those two, or %7B and %7D"
    fault = url_fault(filled, may_hold_login=True)
    if fault is not None:
        return fault
    if "{" in "/".join(url.split("/")[:3]) or "#" in url:
        return "has a { } in its host's name, or a #: ids belong into the path or after the ?"
    if "request_id" not in holes:
        return "lacks {request_id}: write it where the request's own id belongs"
    if "tenant_id" not in holes and not tells_tenant:
        return (
            "lacks {tenant_id}: two tenants may share a request's id, so put it in, name it in "
            "`paths`, or say unique_ids = true"
        )
    return None


def _headers(table: Table | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    if table is None:
        return headers
    names = table.names()
    for name in names[:HEADERS_MAX]:
        if _HEADER.fullmatch(name) is None or name.lower() in _OURS:
            table.fault(name, "is no header that may be set: one such as Authorization is needed")
            continue
        if table.is_text(name) and _SECRET_HEADER.search(name):
            table.fault(name, f"stands there itself: {KEEP_OUT}")
            continue
        value = table.secret(name, literal=True)
        if value is None:
            continue
        if not value.isascii() or len(value) > 8 * TEXT_MAX_LETTERS:
            table.fault(
                name, f"has letters beyond ASCII, or over {8 * TEXT_MAX_LETTERS:,}: copy it again"
            )
            continue
        headers[name] = value
    if len(names) > HEADERS_MAX:
        table.fault(names[HEADERS_MAX], f"is one too many: at most {HEADERS_MAX} headers")
    return headers


_READERS: Final[
    Mapping[str, Callable[[Table, Mapping[str, Any]], tuple[dict[str, Any], dict[str, Any]]]]
] = {
    "sql": _sql,
    "http": _http,
}
