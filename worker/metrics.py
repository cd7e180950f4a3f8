"""``quota-worker metrics``: the facts as Prometheus families. Pure.

What isn't known is absent. Gauges are named after what they count; `_last_day` are of the 24
hours before the look, so they fall, too. Counters (`_total`) begin anew with each billing day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker import __version__
from worker.metrics_text import Exposition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from worker.metrics_facts import MetricFacts, PoolFacts, RequestFacts

NANOS: Final = 10**9
CENTS: Final = 100
# Known from the start, so that a first refusal is an increase and no new series.
CAP_REASONS: Final = (
    "department_protected",
    "department_budget_exhausted",
    "daily_cap_reached",
    "daily_input_tokens_reached",
    "daily_output_tokens_reached",
    "daily_tokens_reached",
    "daily_cost_reached",
    "monthly_completions_reached",
    "monthly_tokens_reached",
    "monthly_cost_reached",
)
RATE_REASON: Final = "rate_limited"
OTHER_REASONS: Final = ("model_not_allowed",)
# A refusal is counted by tenant and reason alone.
UNKNOWN_MODEL: Final = "unknown"
SEVERITIES: Final = ("warning", "downgrade", "protected", "exhausted", "available")
STATES: Final = ("pending", "sending", "sent", "dead", "superseded", "stale")


def unreachable_text() -> str:
    """What is left to say where the database told nothing."""
    out = Exposition()
    _up(out, 0)
    return out.text()


def metrics_text(facts: MetricFacts, read_seconds: float, intervals: Mapping[str, int]) -> str:
    """The whole document; ``intervals`` are the jobs' schedules in seconds."""
    out = Exposition()
    _up(out, 1)
    _worker(out, facts, read_seconds)
    _jobs(out, facts, intervals)
    _departments(out, facts)
    _tenants(out, facts)
    _held(out, facts)
    _requests(out, facts)
    _refusals(out, facts)
    _delivery(out, facts)
    return out.text()


def _up(out: Exposition, value: int) -> None:
    out.family(
        "quota_worker_up", "gauge", "1: the database answered; 0: it did not, all else is absent."
    ).add(value)
    out.family("quota_worker_build_info", "gauge", "The version that wrote this; always 1.").add(
        1, version=__version__
    )


def _worker(out: Exposition, facts: MetricFacts, read_seconds: float) -> None:
    out.family(
        "quota_worker_metrics_timestamp_seconds", "gauge", "When this was read, by the database."
    ).add(facts.at.timestamp())
    out.family(
        "quota_worker_metrics_read_seconds", "gauge", "How long reading all of this took."
    ).add(round(read_seconds, 3))
    tick = facts.tick.last_at
    out.family(
        "quota_worker_tick_timestamp_seconds",
        "gauge",
        "When the latest tick held its lease; absent: there was none.",
    ).add(tick.timestamp() if tick else None)
    backlog = facts.backlog
    out.family(
        "quota_usage_inbox_waiting", "gauge", "Rows of the usage inbox that are not booked yet."
    ).add(backlog.inbox)
    out.family("quota_usage_inbox_oldest_age_seconds", "gauge", "Age of the oldest such row.").add(
        _age(facts, backlog.inbox_since)
    )
    out.family("quota_unpriced_requests", "gauge", "Requests that wait for a price.").add(
        backlog.unpriced
    )


def _jobs(out: Exposition, facts: MetricFacts, intervals: Mapping[str, int]) -> None:
    success = out.family(
        "quota_worker_job_success_timestamp_seconds",
        "gauge",
        "When the job was done last; absent: never.",
    )
    seconds = out.family(
        "quota_worker_job_duration_seconds", "gauge", "How long the job's latest ended run took."
    )
    failed = out.family(
        "quota_worker_job_failed", "gauge", "1: the job's latest ended run failed; 0: it did not."
    )
    interval = out.family("quota_worker_job_interval_seconds", "gauge", "How often the job is due.")
    for job in facts.jobs:
        interval.add(intervals.get(job.job), worker_job=job.job)
        success.add(job.done_at.timestamp() if job.done_at else None, worker_job=job.job)
        seconds.add(job.seconds, worker_job=job.job)
        if job.outcome is not None:
            failed.add(int(job.outcome == "failed"), worker_job=job.job)


def _departments(out: Exposition, facts: MetricFacts) -> None:
    ratio = out.family(
        "quota_department_used_ratio",
        "gauge",
        "Used (posted and held) of the month's budget with live top-ups; 1 is all of it.",
    )
    tokens = out.family(
        "quota_department_used_tokens", "gauge", "Tokens used this month, posted and held."
    )
    cost = out.family(
        "quota_department_used_cost",
        "gauge",
        "Cost used this month, posted and held, in units of the currency.",
    )
    held = out.family(
        "quota_department_held_tokens", "gauge", "Tokens held by open reservations of the month."
    )
    budget = out.family(
        "quota_department_budget_tokens", "gauge", "The month's budget of tokens with top-ups."
    )
    budget_cost = out.family(
        "quota_department_budget_cost", "gauge", "The month's budget of cost with top-ups."
    )
    tier = out.family(
        "quota_department_tier", "gauge", "1 for the tier that the department's month is in."
    )
    for pool in facts.pools:
        labels = {"department": pool.department_id, "environment": pool.environment}
        money = labels | {"currency": facts.currency}
        for dimension, value in _ratios(pool):
            ratio.add(value, **labels, dimension=dimension)
        tokens.add(pool.tokens_used, **labels)
        held.add(pool.tokens_held, **labels)
        cost.add(pool.cost_used_nanos / NANOS, **money)
        budget.add(pool.budget_tokens, **labels)
        if pool.budget_cost_nanos is not None:
            budget_cost.add(pool.budget_cost_nanos / NANOS, **money)
        tier.add(1, **labels, tier=pool.tier)
    out.family(
        "quota_department_pools", "gauge", "Departments' pools, also beyond the 1000 worst shown."
    ).add(facts.pools_known)


def _ratios(pool: PoolFacts) -> list[tuple[str, Decimal | int | None]]:
    return [
        ("tokens", _ratio(pool.tokens_used, pool.budget_tokens)),
        ("cost", _ratio(pool.cost_used_nanos, pool.budget_cost_nanos)),
    ]


def _ratio(used: Decimal, cap: Decimal | None) -> Decimal | int | None:
    """None without a cap; a cap of 0 reads as all used, as everywhere."""
    if cap is None:
        return None
    return used / cap if cap > 0 else 1


def _tenants(out: Exposition, facts: MetricFacts) -> None:
    count = out.family("quota_tenants", "gauge", "Tenants by mode of enforcement.")
    for mode, tenants in facts.tenants:
        count.add(tenants, enforce=mode)
    ratio = out.family(
        "quota_tenant_used_ratio",
        "gauge",
        "Used of the cap that is fullest, of the top tenants; 1 is all of it.",
    )
    bucket = out.family(
        "quota_tenant_bucket_tokens", "gauge", "Tokens in the rate bucket, of the top tenants."
    )
    for row in facts.worst or ():
        if row.dimension is not None and row.used is not None and row.cap is not None:
            ratio.add(
                _ratio(row.used, row.cap),
                tenant=row.subject,
                environment=row.environment,
                department=row.department_id or "",
                dimension=row.dimension,
            )
        bucket.add(row.bucket_tokens, tenant=row.subject)
    used = facts.used
    if used is None:
        return
    out.family("quota_day_used_completions", "gauge", "Completions of all tenants today.").add(
        used.completions or 0
    )
    tokens = out.family("quota_day_used_tokens", "gauge", "Tokens of all tenants today.")
    tokens.add(used.input_tokens or 0, direction="input")
    tokens.add(used.output_tokens or 0, direction="output")
    out.family("quota_day_used_cost", "gauge", "Cost of all tenants today.").add(
        (used.cost_nanos or 0) / NANOS, currency=facts.currency
    )


def _held(out: Exposition, facts: MetricFacts) -> None:
    held = facts.open
    out.family("quota_open_reservations", "gauge", "Reservations that are open.").add(
        held.reservations
    )
    tokens = out.family("quota_held_tokens", "gauge", "Tokens that open reservations hold.")
    tokens.add(held.input_tokens or 0, direction="input")
    tokens.add(held.output_tokens or 0, direction="output")
    out.family("quota_held_cost", "gauge", "Cost that open reservations hold.").add(
        (held.cost_nanos or 0) / NANOS, currency=facts.currency
    )
    out.family(
        "quota_overdue_reservations", "gauge", "Open reservations whose time has run out."
    ).add(held.overdue)
    out.family(
        "quota_overdue_oldest_age_seconds", "gauge", "How long the longest of them is overdue."
    ).add(_age(facts, held.overdue_since))


def _requests(out: Exposition, facts: MetricFacts) -> None:
    by: dict[str, list[RequestFacts]] = {}
    for row in facts.requests:
        by.setdefault(row.label, []).append(row)
    ended = out.family(
        "quota_requests_last_day",
        "gauge",
        "Requests admitted in the last 24 hours by how they ended; expired are stale, "
        "estimated and expired brought no usage.",
    )
    for row in by.get("outcome", ()):
        ended.add(row.requests, outcome=row.value)
    stale = [row for row in by.get("outcome", ()) if row.value == "expired"]
    out.family(
        "quota_stale_cost_last_day",
        "gauge",
        "What requests of the last 24 hours are charged by the stale policy.",
    ).add(sum(row.cost_nanos for row in stale) / NANOS, currency=facts.currency)
    tokens = out.family(
        "quota_model_tokens_last_day",
        "gauge",
        "Tokens charged to requests of the last 24 hours, of the 20 models with the most.",
    )
    cost = out.family(
        "quota_model_cost_last_day", "gauge", "Cost charged to them, by the same models."
    )
    error = out.family(
        "quota_estimate_usage_ratio",
        "gauge",
        "Usage divided by estimates, of requests of the last 24 hours with usage; 1 is exact.",
    )
    for row in by.get("model", ()):
        tokens.add(row.input_tokens, model=row.value, direction="input")
        tokens.add(row.output_tokens, model=row.value, direction="output")
        cost.add(row.cost_nanos / NANOS, model=row.value, currency=facts.currency)
        for direction, used, estimated in (
            ("input", row.used_in, row.estimated_in),
            ("output", row.used_out, row.estimated_out),
        ):
            if used is not None and estimated:
                error.add(used / estimated, model=row.value, direction=direction)
    apps = out.family(
        "quota_app_cost_last_day", "gauge", "Cost by app, of the 20 apps with the most requests."
    )
    for row in by.get("app", ()):
        apps.add(row.cost_nanos / NANOS, app=row.value, currency=facts.currency)
    observed = out.family(
        "quota_would_be_refusals_last_day",
        "gauge",
        "Requests of observed tenants in the last 24 hours that would have been refused.",
    )
    for row in by.get("observed", ()):
        if row.value:
            observed.add(row.requests, reason=row.value)


def _refusals(out: Exposition, facts: MetricFacts) -> None:
    counts = dict.fromkeys((*CAP_REASONS, RATE_REASON, *OTHER_REASONS), 0) | dict(facts.refusals)
    refused = out.family(
        "quota_refusals_total", "counter", "Refusals since the billing day began, by reason."
    )
    for reason, count in counts.items():
        refused.add(count, reason=reason)
    hits = out.family(
        "ntgw_ai_token_rate_limit_hits_total",
        "counter",
        "Refusals by a limit since the billing day began, by whose limit; "
        "the model of a refusal is not recorded.",
    )
    limits = [*CAP_REASONS, RATE_REASON]
    for scope in ("tenant", "department"):
        department = scope == "department"
        hits.add(
            sum(counts[r] for r in limits if r.startswith("department_") == department),
            model=UNKNOWN_MODEL,
            scope=scope,
        )
    out.family(
        "ntgw_ai_tenant_denied_total",
        "counter",
        "Refusals by a cap or budget since the billing day began.",
    ).add(sum(counts[reason] for reason in CAP_REASONS), reason="quota_exceeded")


def _delivery(out: Exposition, facts: MetricFacts) -> None:
    results = {(severity, state): 0 for severity in SEVERITIES for state in STATES}
    causes: dict[str, int] = {}
    for alert in facts.alerts:
        key = (alert.severity, alert.state)
        results[key] = results.get(key, 0) + alert.messages
        if alert.last_failure is not None:
            causes[alert.last_failure] = causes.get(alert.last_failure, 0) + alert.messages
    alerts = out.family(
        "quota_alerts_last_day",
        "gauge",
        "Messages made in the last 24 hours by severity and result.",
    )
    for (severity, state), messages in results.items():
        alerts.add(messages, severity=severity, result=state)
    failures = out.family(
        "quota_alert_failures_last_day",
        "gauge",
        "Of them those with a failed attempt, by the latest cause.",
    )
    for cause, messages in sorted(causes.items()):
        failures.add(messages, cause=cause)
    out.family("quota_outbox_messages", "gauge", "Messages that wait to be sent.").add(
        sum(channel.waiting for channel in facts.channels)
    )
    waiting = out.family(
        "quota_outbox_channel_messages", "gauge", "The same by channel, where any waits."
    )
    age = out.family(
        "quota_outbox_oldest_age_seconds", "gauge", "Age of a channel's oldest waiting message."
    )
    dead = out.family(
        "quota_outbox_dead_messages",
        "gauge",
        "Messages that were given up and that nobody has acknowledged.",
    )
    dead.add(sum(channel.dead for channel in facts.channels))
    for channel in facts.channels:
        if channel.waiting:
            waiting.add(channel.waiting, channel=channel.channel)
            age.add(_age(facts, channel.waiting_since), channel=channel.channel)


def _age(facts: MetricFacts, since: object) -> float | None:
    from datetime import datetime

    if not isinstance(since, datetime):
        return None
    return max(round((facts.at - since).total_seconds(), 3), 0)
