"""Matches the rows of a query to the requests that were asked for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.sources.reading import Reading, UnusableAnswerError, name_of
from worker.usage import FaultReason, OverdueRequest, SourceFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from worker.sources.base import Gathered
    from worker.sources.reading import Reader

Key = tuple[str, str]


class _Told(NamedTuple):
    """What all rows told of one request so far; ``fault`` stands for every row of it."""

    reading: Reading | None = None
    fault: SourceFault | None = None


def gather_rows(
    rows: Iterable[Mapping[str, object]],
    requests: Sequence[OverdueRequest],
    reader: Reader,
    gathered: Gathered,
) -> None:
    """Put the usages of the rows, and what must be set aside of them, into ``gathered``.

    Rows by our words; without ``tenant_id`` the request's id decides. Two rows of one request
    that tell the same are one; that tell otherwise, none: which is right isn't known here.
    """
    by_key = {(one.tenant_id, one.request_id): one for one in requests}
    tenants: dict[str, list[str]] = {}
    for one in requests:
        tenants.setdefault(one.request_id, []).append(one.tenant_id)
    told: dict[Key, _Told] = {}
    for row in rows:
        key = _key_of(row, tenants, reader, gathered)
        if key is not None:
            told[key] = _with_row(told.get(key, _Told()), row, by_key[key], reader)
    for key, (reading, fault) in told.items():
        if fault is not None:
            gathered.set_aside(fault)
        elif reading is not None:
            gathered.usages.append(reading.usage)
            if reading.cost_fault is not None:
                gathered.set_aside(reading.cost_fault)
        else:
            gathered.not_yet.append(by_key[key])


def _key_of(
    row: Mapping[str, object],
    tenants: Mapping[str, list[str]],
    reader: Reader,
    gathered: Gathered,
) -> Key | None:
    """Which request the row is about; None for one that wasn't asked for: it is set aside."""
    request_id = name_of(row.get("request_id")) or ""
    named = name_of(row.get("tenant_id")) or ""
    askers = tenants.get(request_id, [])
    if not askers:
        fault, words = FaultReason.NOT_ASKED, "this request was not asked for"
    elif "tenant_id" not in row:
        if len(askers) == 1:
            return askers[0], request_id
        fault = FaultReason.NOT_UNIQUE
        words = f"{len(askers)} tenants have this request id: give the query a column of the tenant"
    elif named in askers:
        return named, request_id
    else:
        fault = FaultReason.OTHER_TENANT
        words = f"usage of the tenant {named[:100]!r}, which was not asked for"
    if not askers:
        request_id, askers = reader.excerpt(request_id), [reader.excerpt(named)]
    for tenant_id in askers:
        gathered.set_aside(SourceFault(tenant_id, request_id, fault, reader.excerpt(words)))
    return None


def _with_row(
    before: _Told, row: Mapping[str, object], request: OverdueRequest, reader: Reader
) -> _Told:
    if before.fault is not None:
        return before
    try:
        reading = reader.read(request, row)
    except UnusableAnswerError as error:
        return _Told(fault=reader.fault(request, error.reason, str(error)))
    if reading is None:
        return before
    if before.reading is None:
        return _Told(reading)
    one, other = before.reading.usage, reading.usage
    if one[3:8] != other[3:8]:
        words = (
            f"two rows: in_tokens {one.in_tokens} and {other.in_tokens}, out_tokens "
            f"{one.out_tokens} and {other.out_tokens}, cost {one.cost} and {other.cost}: have "
            "the query return one row for a request"
        )
        return _Told(fault=reader.fault(request, FaultReason.CONTRADICTION, words))
    # the same figures twice: whichever row comes first, the usage has the same id
    return _Told(
        min(before.reading, reading, key=lambda r: (r.usage.usage_id, r.usage.model or ""))
    )
