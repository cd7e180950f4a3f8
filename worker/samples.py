"""Sample facts per kind of message, in the shape that quota_warn_facts makes. Pure.

For `quota-worker preview`, and for tests: every template must render from each of them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from worker.samples_missing import missing_facts
from worker.samples_report import report_facts
from worker.samples_watch import burn_facts, runaway_facts
from worker.trial import trial_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# When the samples were decided, 18:00 in Shanghai.
AT: Final = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
DIGEST_MESSAGES: Final = 50
UNDELIVERED: Final = {"channel": "ops", "cause": "bot_removed", "attempts": 1}
MAX_NAME: Final = 200

# Case 23, and what else a name may try.
HOSTILE_NAMES: Final = (
    "<at id=all></at>",
    '<at user_id="all">x</at>',
    "@所有人",
    "@all",
    "[x](http://e)",
    'a"b\\',
    "**bold** _it_ ~~s~~ `c` $x$",
    ":OK: & &amp; #1 + - !",
    "{{ 7 * 7 }}{% raw %}",
    "-rf",
    "a\nnext: all is well",
    "a\r\n[quota-warn] b at 1%",
    "\x1b[2J\x07bell",
    "a\0b",
    "\u202eevil",
    "\u200b",
    "   ",
    "用户 甲",
    "👩\u200d👩\u200d👧",
)
# All at once, then each; but for a NUL, which no database takes.
_HOSTILE: Final = (
    '<at id=all></at> @所有人 [x](http://e) a"b\\ **b** `c` $x$ {{ 7 }}\nnext: \u202e\x1b[2J',
    *(name for name in HOSTILE_NAMES if "\0" not in name),
)
_TEAMS: Final = ("Marketing", "R&D", "Sales", "客户服务部", "Finance", "Legal", "Data", "Design")
_TITLES: Final = (
    "华东区智能客服与知识库平台",
    "国际市场内容本地化流水线",
    "研发效能与代码评审助手",
)


def long_name(number: int = 0) -> str:
    """200 CJK characters without a place to break a line."""
    title = _TITLES[number % len(_TITLES)]
    return (title * (MAX_NAME // len(title) + 1))[:MAX_NAME]


def dimension(name: str = "completions", **changes: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """One cap of an alert: `used`, `held`, `cap` in nanos where it is cost."""
    return {
        "dimension": name,
        "period_kind": "day",
        "period_start": "2026-11-30",
        "resets_at": "2026-12-01T00:00:00+00:00",
        "used": 41,
        "held": None,
        "cap": 50,
        "pct": 82.0,
        "threshold": 80,
        "crossed": True,
        "refused_at": None,
        "expected_at": None,
    } | changes


def tenant_facts(subject: str = "tenant-free", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A tenant past its warning threshold."""
    return {
        "subject_kind": "tenant",
        "subject": subject,
        "environment": "production",
        "department_id": None,
        "department_name": None,
        "severity": "warning",
        "threshold": 80,
        "past": False,
        "decided_at": "2026-11-30T10:00:00+00:00",
        "zone": "UTC",
        "currency": "USD",
        "dimensions": [
            dimension(),
            dimension(
                "cost",
                used=820_000_000,
                held=20_000_000,
                cap=2_000_000_000,
                pct=41.0,
                threshold=None,
                crossed=False,
            ),
        ],
        "enforce": "on",
        "tier": None,
        "downgrade_model": None,
        "downgrade_from": None,
        "owner_emails": [],
        "finance_emails": [],
        "top_apps": None,
    } | changes


def department_facts(subject: str = "rnd", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A department whose requests get the smaller model."""
    return (
        tenant_facts(
            subject,
            subject_kind="department",
            department_id=subject,
            department_name="R&D",
            dimensions=[
                dimension(
                    "tokens",
                    period_kind="month",
                    period_start="2026-11-01",
                    used=9_100,
                    held=100,
                    cap=10_000,
                    pct=91.0,
                    threshold=90,
                )
            ],
            severity="downgrade",
            threshold=90,
            enforce=None,
            tier="downgrade",
            downgrade_pct=90,
            protect_pct=98,
            downgrade_model="small",
            downgrade_from=["large", "huge"],
            finance_emails=["money@example.com"],
            top_apps=[
                {
                    "app": "crawler",
                    "tokens": 8_000,
                    "cost_nanos": 12_345_678_900,
                    "share_pct": 87.9,
                    "models": ["large", "small"],
                },
                {"app": "", "tokens": 1_100, "cost_nanos": 1, "share_pct": 12.1, "models": []},
            ],
        )
        | changes
    )


def sample_facts(kind: str, samples: str) -> list[dict[str, Any]]:
    """The facts of a message of this kind; of a digest, those of its messages.

    Raises KeyError for an unknown kind or set of samples.
    """
    make = SAMPLES[samples]
    if kind == TEST:
        name = make[TENANT](0)["subject"] if samples in _NAMING else "ops"
        return [trial_facts(name, "quota-1.example", AT)]
    if kind == AVAILABLE:
        return [_available(make[TENANT](0))]
    if kind in _LISTING:
        return [_listing(kind, samples)]
    if kind == REPORT:
        return [_report(samples)]
    if kind != DIGEST:
        return [make[kind](0)]
    members = [make[DEPARTMENT if n % 4 == 0 else TENANT](n) for n in range(DIGEST_MESSAGES)]
    return sorted(members, key=lambda facts: _URGENCY.index(facts["severity"]))


def _listing(kind: str, samples: str) -> dict[str, Any]:
    names = {"long-names": _LONG, "hostile-names": _HOSTILE}.get(samples, ())
    facts = _LISTING[kind](names, many=bool(names))
    return facts | ({"undelivered": UNDELIVERED} if samples == "fallback" else {})


def _report(samples: str) -> dict[str, Any]:
    name = {"long-names": _LONG[0], "hostile-names": _HOSTILE[0]}.get(samples)
    facts = report_facts(name, corrected=samples == "past")
    return facts | ({"undelivered": UNDELIVERED} if samples == "fallback" else {})


def _available(facts: dict[str, Any]) -> dict[str, Any]:
    """The same subject, after its cap was raised."""
    told = [
        one | {"cap": one["cap"] * 2, "pct": one["pct"] / 2, "threshold": 100, "refused_at": None}
        for one in facts["dimensions"]
        if one["crossed"]
    ]
    return facts | {
        "severity": "available",
        "threshold": 100,
        "past": False,
        "reason": "allowance",
        "dimensions": told,
    }


def _tenant(number: int) -> dict[str, Any]:
    """A tenant in Shanghai that will be full within the day, one in three already is."""
    used = 1_640 + 2 * number
    full = number % 3 == 2  # noqa: PLR2004  the third
    completions = dimension(
        used=2_000 if full else used,
        cap=2_000,
        pct=100.0 if full else used / 20,
        threshold=100 if full else 80,
        resets_at="2026-11-30T16:00:00+00:00",
        expected_at=None if full else "2026-11-30T12:20:00+00:00",
    )
    cost = dimension(
        "cost",
        used=20_512_500_000,
        held=25_640_000,
        cap=50_000_000_000,
        pct=41.0,
        threshold=None,
        crossed=False,
        resets_at="2026-11-30T16:00:00+00:00",
    )
    return tenant_facts(
        "tenant-free" if number == 0 else f"tenant-{number:02}",
        severity="exhausted" if full else "warning",
        threshold=100 if full else 80,
        zone="Asia/Shanghai",
        currency="CNY",
        dimensions=[completions, cost],
        department_id="marketing",
        department_name="Marketing",
    )


def _exhausted_tenant(number: int) -> dict[str, Any]:
    return _tenant(2) | {"subject": f"tenant-{number:02}"}


def _refused_tenant(number: int) -> dict[str, Any]:
    """One whose large request did not fit, though little is used."""
    return tenant_facts(
        f"tenant-{number:02}",
        severity="exhausted",
        threshold=100,
        dimensions=[
            dimension(
                "input_tokens",
                used=1_840_000,
                cap=2_000_000,
                pct=92.0,
                threshold=100,
                refused_at="2026-11-30T09:58:00+00:00",
            )
        ],
    )


def _past_tenant(number: int) -> dict[str, Any]:
    """One that was full yesterday, while nobody looked."""
    facts = _exhausted_tenant(number)
    yesterday = {"period_start": "2026-11-29", "resets_at": "2026-11-29T16:00:00+00:00"}
    told = [one | yesterday for one in facts["dimensions"] if one["crossed"]]
    return facts | {"past": True, "dimensions": told}


def _department(number: int) -> dict[str, Any]:
    """A department near its month's end, with five apps."""
    apps = [
        ("seo-audit", 4_142_498, 1_053_499_000_000, 45.1, ["large", "small"]),
        ("newsletter", 3_150_484, 727_187_600_000, 31.2, ["large"]),
        ("landing-pages", 931_020, 324_604_300_000, 13.9, ["large", "small"]),
        ("", 402_110, 149_010_000_000, 6.4, ["small"]),
        ("nightly-translation", 88_400, 79_220_150_000, 3.4, ["small"]),
    ]
    return department_facts(
        "marketing" if number == 0 else f"department-{number:02}",
        department_name=_TEAMS[number // 4 % len(_TEAMS)],
        zone="Asia/Shanghai",
        currency="CNY",
        dimensions=[
            dimension(
                "cost",
                period_kind="month",
                period_start="2026-11-01",
                resets_at="2026-11-30T16:00:00+00:00",
                used=27_412_380_500_000,
                held=96_250_000_000,
                cap=30_000_000_000_000,
                pct=91.3,
                threshold=90,
                expected_at="2026-11-30T14:35:00+00:00",
            )
        ],
        owner_emails=["owner@marketing.example"],
        finance_emails=["finance@marketing.example"],
        top_apps=[
            {"app": app, "tokens": tokens, "cost_nanos": cost, "share_pct": share, "models": models}
            for app, tokens, cost, share, models in apps
        ],
    )


def _exhausted_department(number: int) -> dict[str, Any]:
    facts = _department(number)
    (cost,) = facts["dimensions"]
    cost |= {"used": cost["cap"], "pct": 100.0, "threshold": 100, "expected_at": None}
    return facts | {"severity": "exhausted", "threshold": 100, "tier": "exhausted"}


def _refused_department(number: int) -> dict[str, Any]:
    facts = _department(number)
    (cost,) = facts["dimensions"]
    cost |= {"threshold": 100, "refused_at": "2026-11-30T09:58:00+00:00"}
    return facts | {"severity": "exhausted", "threshold": 100}


def _past_department(number: int) -> dict[str, Any]:
    facts = _exhausted_department(number)
    october = {"period_start": "2026-10-01", "resets_at": "2026-10-31T16:00:00+00:00", "held": None}
    told = [one | october for one in facts["dimensions"]]
    return facts | {"past": True, "tier": "normal", "dimensions": told}


def _undelivered(
    make: Callable[[int], dict[str, Any]],
) -> Callable[[int], dict[str, Any]]:
    return lambda number: make(number) | {"undelivered": UNDELIVERED}


def _named(
    make: Callable[[int], dict[str, Any]], names: Sequence[str]
) -> Callable[[int], dict[str, Any]]:
    """The same with these names everywhere that somebody else chooses one."""

    def named(number: int) -> dict[str, Any]:
        name = names[number % len(names)]
        facts = make(number) | {"subject": name, "department_name": name}
        if facts["top_apps"]:
            facts["top_apps"] = [
                app | {"app": names[(number + place) % len(names)], "models": [name]}
                for place, app in enumerate(facts["top_apps"])
            ]
            facts |= {"finance_emails": [name], "downgrade_from": [name], "downgrade_model": name}
        return facts

    return named


TENANT: Final = "tenant-warn"
DEPARTMENT: Final = "department-warn"
DIGEST: Final = "digest"
TEST: Final = "test"
AVAILABLE: Final = "available"
MISSING: Final = "usage-missing"
BURN: Final = "burn-rate"
RUNAWAY: Final = "runaway"
REPORT: Final = "roi-report"
KINDS: Final = (TENANT, DEPARTMENT, AVAILABLE, MISSING, BURN, RUNAWAY, REPORT, DIGEST, TEST)
# Kinds that list apps and keys.
_LISTING: Final = {MISSING: missing_facts, BURN: burn_facts, RUNAWAY: runaway_facts}
# Sets that differ by the names that people choose.
_NAMING: Final = frozenset({"long-names", "hostile-names"})
# As the outbox is claimed: a digest's first line is its most urgent.
_URGENCY: Final = ("exhausted", "protected", "downgrade", "warning")
_LONG: Final = tuple(long_name(number) for number in range(len(_TITLES)))
# By set of samples and kind: the facts of the message of a number.
SAMPLES: Final[Mapping[str, Mapping[str, Callable[[int], dict[str, Any]]]]] = {
    "usual": {TENANT: _tenant, DEPARTMENT: _department},
    "exhausted": {TENANT: _exhausted_tenant, DEPARTMENT: _exhausted_department},
    "refused": {TENANT: _refused_tenant, DEPARTMENT: _refused_department},
    "past": {TENANT: _past_tenant, DEPARTMENT: _past_department},
    "fallback": {TENANT: _undelivered(_tenant), DEPARTMENT: _undelivered(_department)},
    "long-names": {TENANT: _named(_tenant, _LONG), DEPARTMENT: _named(_department, _LONG)},
    "hostile-names": {
        TENANT: _named(_tenant, _HOSTILE),
        DEPARTMENT: _named(_department, _HOSTILE),
    },
}
