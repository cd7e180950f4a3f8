"""The shape of a message's facts, to name what is wrong with those that somebody wrote by hand.

What quota_warn_facts makes is right by itself; a template only says that it failed. Pure.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from worker.periods import load_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_SUGGESTIONS: Final = 1
AVAILABLE: Final = "available"
MISSING: Final = "usage-missing"
BURN: Final = "burn-rate"
RUNAWAY: Final = "runaway"
REPORT: Final = "roi-report"
SEVERITIES: Final = ("exhausted", "protected", "downgrade", "warning", AVAILABLE)


# By kind of message: whose facts those are.
FACTS_OF: Final = {
    "tenant-warn": "a tenant's",
    "department-warn": "a department's",
    "available": "an available notice's",
    MISSING: "a usage-missing message's",
    BURN: "a burn-rate message's",
    RUNAWAY: "a runaway message's",
    REPORT: "a report's",
}


def facts_faults(facts: object) -> list[str]:
    """What is wrong with an alert's facts, each with its place: ``dimensions[0].used: …``."""
    if isinstance(facts, dict) and "groups" in facts:
        return list(_object_faults(facts, "", _MISSING)) or list(_group_faults(facts))
    if isinstance(facts, dict) and "callers" in facts:
        return list(_object_faults(facts, "", _BURN)) or list(_burn_faults(facts))
    if isinstance(facts, dict) and "findings" in facts:
        return list(_object_faults(facts, "", _RUNAWAY)) or list(_finding_faults(facts))
    if isinstance(facts, dict) and "total_cost_nanos" in facts:
        return list(_object_faults(facts, "", _REPORT))
    faults = list(_object_faults(facts, "", _ALERT))
    if isinstance(facts, dict) and not faults:
        faults += _missing_of_kind(facts)
    return faults


def kind_of(facts: Mapping[str, Any]) -> str:
    """The kind of message whose facts these are; their shape was judged before."""
    if "groups" in facts:
        return MISSING
    if "callers" in facts:
        return BURN
    if "findings" in facts:
        return RUNAWAY
    if "total_cost_nanos" in facts:
        return REPORT
    if facts["severity"] == AVAILABLE:
        return "available"
    return "tenant-warn" if facts["subject_kind"] == "tenant" else "department-warn"


def _missing_of_kind(facts: Mapping[str, Any]) -> Iterator[str]:
    """What some kinds of message show, and others don't have."""
    kind = kind_of(facts)
    if kind == "tenant-warn" and facts["enforce"] is None:
        yield "enforce: a text is wanted of a tenant, such as on"
    if kind == "department-warn" and facts["tier"] is None:
        yield "tier: a text is wanted of a department, such as normal"
    if kind == "available" and "reason" not in facts:
        yield "reason: missing, one of period, allowance is wanted"


def _group_faults(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a message about requests without usage can't say."""
    if not facts["groups"]:
        yield "groups: at least one is wanted"
    if facts["group_count"] < len(facts["groups"]):
        yield "group_count: fewer than there are groups"
    for place, one in [("", facts), *((f"groups[{n}].", g) for n, g in enumerate(facts["groups"]))]:
        if one["requests"] < 1 or not 0 <= one["missing"] <= one["requests"]:
            yield f"{place}missing: a part of the requests is wanted, of which there is at least 1"


def _burn_faults(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a message about caps that fall soon can't say."""
    if not facts["dimensions"]:
        yield "dimensions: at least one is wanted"
    for place, one in enumerate(facts["dimensions"]):
        if one["expected_at"] is None:
            yield f"dimensions[{place}].expected_at: {_MOMENT[0]} is wanted"


def _finding_faults(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a message about apps and keys that run away can't say."""
    if not facts["findings"]:
        yield "findings: at least one is wanted"
    if facts["finding_count"] < len(facts["findings"]):
        yield "finding_count: fewer than there are findings"
    for place, one in enumerate(facts["findings"]):
        if not 0 < one["same"] <= one["recent"]:
            yield f"findings[{place}].same: at least 1 is wanted, and at most recent"
        if one["rule"] == "times_usual" and not one["usual"]:
            yield f"findings[{place}].usual: more than 0 is wanted of times_usual"
        if one["rule"] == "every_minute" and one["usual_minutes"] is None:
            yield f"findings[{place}].usual_minutes: a number is wanted of every_minute"


class _Fact:
    """One fact: what is right, in words and as a check; and whether it may be left out."""

    def __init__(
        self,
        wanted: str,
        check: Callable[[Any], bool],
        *,
        or_null: bool = False,
        may_lack: bool = False,
        inner: Mapping[str, _Fact] | None = None,
    ) -> None:
        self.wanted = wanted + (" or null" if or_null else "")
        self.check = check
        self.or_null = or_null
        self.may_lack = may_lack
        self.inner = inner


def _object_faults(value: object, place: str, shape: Mapping[str, _Fact]) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place or 'the facts'}: an object is wanted"
        return
    for key in value:
        if key not in shape:
            yield f"{_inside(place, key)}: no such fact{_meant(key, shape)}"
    for key, fact in shape.items():
        where = _inside(place, key)
        if key in value:
            yield from _fact_faults(value[key], where, fact)
        elif not fact.may_lack:
            yield f"{where}: missing, {fact.wanted} is wanted"


def _fact_faults(value: object, place: str, fact: _Fact) -> Iterator[str]:
    if value is None and fact.or_null:
        return
    if not fact.check(value):
        yield f"{place}: {fact.wanted} is wanted"
    elif fact.inner is not None and isinstance(value, list):
        for number, one in enumerate(value):
            yield from _object_faults(one, f"{place}[{number}]", fact.inner)
    elif fact.inner is not None:
        yield from _object_faults(value, place, fact.inner)


def _inside(place: str, key: object) -> str:
    from worker.untrusted import for_terminal

    name = for_terminal(str(key))
    return f"{place}.{name}" if place else name


def _meant(key: object, shape: Mapping[str, _Fact]) -> str:
    import difflib

    near = difflib.get_close_matches(str(key), shape, n=MAX_SUGGESTIONS)
    return f", did you mean {near[0]}?" if near else ""


def _is_number(value: object) -> bool:
    return (
        isinstance(value, (int, float, Decimal))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _is_whole(value: object) -> bool:
    return _is_number(value) and value == int(value)  # type: ignore[call-overload]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_day(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.strptime(value, "%Y-%m-%d") is not None  # noqa: DTZ007
    except ValueError:
        return False


def _is_month(value: object) -> bool:
    return isinstance(value, str) and _is_day(f"{value}-01")


def _is_zone(value: object) -> bool:
    try:
        return isinstance(value, str) and load_zone(value) is not None
    except ValueError:
        return False


def _one_of(*words: str) -> tuple[str, Callable[[object], bool]]:
    return f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words


_WHOLE: Final = ("a whole number", _is_whole)
_NUMBER: Final = ("a number", _is_number)
_TEXT: Final = ("a text", _is_text)
_TEXTS: Final = ("a list of texts", _is_texts)
_MOMENT: Final = ("a time with its offset, like 2026-11-30T10:00:00+00:00", _is_moment)
_FLAG: Final = ("true or false", lambda value: isinstance(value, bool))
_LIST: Final = ("a list", lambda value: isinstance(value, list))
_OBJECT: Final = ("an object", lambda value: isinstance(value, dict))

_DIMENSION: Final[Mapping[str, _Fact]] = {
    "dimension": _Fact(*_one_of("completions", "cost", "input_tokens", "output_tokens", "tokens")),
    "period_kind": _Fact(*_one_of("day", "month")),
    "period_start": _Fact("a day like 2026-11-30", _is_day),
    "resets_at": _Fact(*_MOMENT),
    "used": _Fact(*_WHOLE),
    "held": _Fact(*_WHOLE, or_null=True),
    "cap": _Fact(*_WHOLE),
    "pct": _Fact(*_NUMBER),
    "threshold": _Fact(*_WHOLE, or_null=True),
    "crossed": _Fact(*_FLAG),
    "refused_at": _Fact(*_MOMENT, or_null=True),
    "expected_at": _Fact(*_MOMENT, or_null=True),
}
_APP: Final[Mapping[str, _Fact]] = {
    "app": _Fact(*_TEXT),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
    "share_pct": _Fact(*_NUMBER),
    "models": _Fact(*_TEXTS),
}
_UNDELIVERED: Final[Mapping[str, _Fact]] = {
    "channel": _Fact(*_TEXT),
    "cause": _Fact(*_TEXT),
    "attempts": _Fact(*_WHOLE),
    # the address, where the channel serves many
    "recipient": _Fact(*_TEXT, or_null=True, may_lack=True),
}
_ALERT: Final[Mapping[str, _Fact]] = {
    "subject_kind": _Fact(*_one_of("tenant", "department")),
    "subject": _Fact(*_TEXT),
    "environment": _Fact(*_TEXT),
    "department_id": _Fact(*_TEXT, or_null=True),
    "department_name": _Fact(*_TEXT, or_null=True),
    "severity": _Fact(*_one_of(*SEVERITIES)),
    "threshold": _Fact(*_WHOLE),
    "past": _Fact(*_FLAG),
    "decided_at": _Fact(*_MOMENT),
    "zone": _Fact("a time zone like Asia/Shanghai", _is_zone),
    "currency": _Fact(*_TEXT),
    "dimensions": _Fact(*_LIST, inner=_DIMENSION),
    "enforce": _Fact(*_TEXT, or_null=True),
    "tier": _Fact(*_TEXT, or_null=True),
    "downgrade_pct": _Fact(*_WHOLE, or_null=True, may_lack=True),
    "protect_pct": _Fact(*_WHOLE, or_null=True, may_lack=True),
    "downgrade_model": _Fact(*_TEXT, or_null=True),
    "downgrade_from": _Fact(*_TEXTS, or_null=True),
    "owner_emails": _Fact(*_TEXTS),
    "finance_emails": _Fact(*_TEXTS),
    "top_apps": _Fact(*_LIST, or_null=True, inner=_APP),
    # why a subject is available again
    "reason": _Fact(*_one_of("period", "allowance"), may_lack=True),
    # only where it is told on a fallback channel
    "undelivered": _Fact(*_OBJECT, may_lack=True, inner=_UNDELIVERED),
}
_GROUP: Final[Mapping[str, _Fact]] = {
    "model": _Fact(*_TEXT),
    "app": _Fact(*_TEXT),
    "api_key": _Fact(*_TEXT),
    "requests": _Fact(*_WHOLE),
    "missing": _Fact(*_WHOLE),
    "share_pct": _Fact(*_NUMBER),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
    "department_id": _Fact(*_TEXT, or_null=True),
    "department_name": _Fact(*_TEXT, or_null=True),
}
_MISSING: Final[Mapping[str, _Fact]] = {
    "severity": _Fact(*_one_of("warning")),
    "decided_at": _Fact(*_MOMENT),
    "zone": _ALERT["zone"],
    "currency": _Fact(*_TEXT),
    "dimensions": _Fact("an empty list", lambda value: value == []),
    "top_apps": _Fact("null", lambda value: value is None),
    "hours": _Fact(*_WHOLE),
    "missing_pct": _Fact(*_WHOLE),
    "group_count": _Fact(*_WHOLE),
    "requests": _Fact(*_WHOLE),
    "missing": _Fact(*_WHOLE),
    "uncharged": _Fact(*_WHOLE),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
    "groups": _Fact(*_LIST, inner=_GROUP),
    "undelivered": _ALERT["undelivered"],
}
_ABOUT: Final = (
    "subject_kind",
    "subject",
    "environment",
    "department_id",
    "department_name",
    "decided_at",
    "zone",
    "currency",
)
_WATCHED: Final[Mapping[str, _Fact]] = {name: _ALERT[name] for name in _ABOUT} | {
    "severity": _MISSING["severity"],
    "top_apps": _MISSING["top_apps"],
    "undelivered": _ALERT["undelivered"],
}
_CALLER: Final[Mapping[str, _Fact]] = {
    "app": _Fact(*_TEXT),
    "api_key": _Fact(*_TEXT),
    "requests": _Fact(*_WHOLE),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
}
_PACES: Final[Mapping[str, _Fact]] = {
    "pace": _Fact(*_WHOLE),
    "short_pace": _Fact(*_WHOLE),
    "times_even": _Fact(*_NUMBER),
}
_BURN: Final[Mapping[str, _Fact]] = {
    **_WATCHED,
    "dimensions": _Fact(*_LIST, inner={**_DIMENSION, **_PACES}),
    "callers": _Fact(*_LIST, inner={**_CALLER, "share_pct": _Fact(*_NUMBER, or_null=True)}),
    "owner_emails": _Fact(*_TEXTS),
    "finance_emails": _Fact(*_TEXTS),
}
_FINDING: Final[Mapping[str, _Fact]] = {
    **_CALLER,
    "rule": _Fact(*_one_of("tight_loop", "every_minute", "times_usual")),
    "figure": _Fact(*_one_of("requests", "tokens", "cost")),
    "present": _Fact(*_WHOLE),
    "usual": _Fact(*_WHOLE, or_null=True),
    "minutes": _Fact(*_WHOLE),
    "recent": _Fact(*_WHOLE),
    "same": _Fact(*_WHOLE),
    "same_in_tokens": _Fact(*_WHOLE),
    "usual_minutes": _Fact(*_NUMBER, or_null=True),
    "end_users": _Fact(*_WHOLE),
    "models": _Fact(*_TEXTS),
    "key_count": _Fact(*_WHOLE, may_lack=True),
}
_RUNAWAY: Final[Mapping[str, _Fact]] = {
    **_WATCHED,
    "subject_kind": _Fact(*_one_of("tenant")),
    "dimensions": _MISSING["dimensions"],
    "finding_count": _Fact(*_WHOLE),
    "requests": _Fact(*_WHOLE),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
    "findings": _Fact(*_LIST, inner=_FINDING),
}
_CHANGE: Final[Mapping[str, _Fact]] = {
    "figure": _Fact(*_TEXT),
    "old": _Fact(*_TEXT, or_null=True),
    "new": _Fact(*_TEXT, or_null=True),
}
_REPORT: Final[Mapping[str, _Fact]] = {
    "severity": _Fact(*_one_of(AVAILABLE)),
    "decided_at": _Fact(*_MOMENT),
    "zone": _ALERT["zone"],
    "currency": _Fact(*_TEXT),
    "dimensions": _MISSING["dimensions"],
    "top_apps": _MISSING["top_apps"],
    "month": _Fact("a month like 2026-10", _is_month),
    "department_id": _Fact(*_TEXT),
    "department_name": _Fact(*_TEXT, or_null=True),
    "revision": _Fact(*_WHOLE),
    "changes": _Fact(*_LIST, inner=_CHANGE),
    "completions": _Fact(*_WHOLE),
    "tokens": _Fact(*_WHOLE),
    "cost_nanos": _Fact(*_WHOLE),
    "total_cost_nanos": _Fact(*_WHOLE),
    "undelivered": _ALERT["undelivered"],
}
