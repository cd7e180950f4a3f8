"""Limits that can't be meant so. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.doctor.finding import NOTE, WARNING, Finding, named, ok, one_line, times

if TYPE_CHECKING:
    from worker.doctor.facts import OddFacts, TenantFacts

APPLY = (
    "quota-worker limits show --toml > limits.toml, mend it there, then "
    "quota-worker limits apply limits.toml"
)


def tenants(found: TenantFacts) -> list[Finding]:
    """Whether anybody's limits are enforced, and budgets are where departments are named."""
    told = []
    if found.tenants and not found.enforcing:
        told.append(
            Finding(
                "tenants",
                NOTE,
                f"of {times(found.tenants, 'tenant')} none is enforced: nobody is refused",
                'psql "$POSTGRES_DSN" -c '
                "\"UPDATE tenant_limits SET enforce = 'on' WHERE tenant_id = 'NAME'\"",
            )
        )
    elif not found.tenants:
        told.append(
            Finding(
                "tenants",
                NOTE,
                "there is no tenant: every request is refused with unknown_tenant",
                'psql "$POSTGRES_DSN" -c "INSERT INTO tenant_limits (tenant_id) VALUES (\'NAME\')"',
            )
        )
    if found.without_budget:
        told.append(
            Finding(
                "budgets",
                NOTE,
                f"{times(found.without_budget, 'tenant')}, such as "
                f"{one_line(found.one_without_budget or '')}, of departments without a budget in "
                "their environment: only their own caps hold",
                APPLY,
            )
        )
    else:
        told += ok("budgets", "every department that a tenant names has a budget")
    enforced = f"{found.enforcing:,} of {times(found.tenants, 'tenant')} enforced"
    return told if found.enforcing == 0 else [*told, *ok("tenants", enforced)]


def odd(tenants_found: OddFacts, budgets_found: OddFacts) -> list[Finding]:
    """Negative caps, percents of 500 or out of order: kept as they were, and named."""
    told = [
        Finding(
            "limits",
            WARNING,
            f"{times(found.found, 'odd limit')} of {kind}s: "
            + named(
                [f"{name}{f' ({env})' if env else ''}: {fault}" for name, env, fault in found.rows],
                found.found,
            ),
            APPLY,
        )
        for kind, found in (("tenant", tenants_found), ("budget", budgets_found))
        if found.found
    ]
    return told or ok("limits", "no limit is odd")


def tiers(found: OddFacts) -> list[Finding]:
    """A downgrade tier saves money, not tokens."""
    if not found.found:
        return ok("tiers", "no downgrade tier stands on a budget of tokens alone")
    return [
        Finding(
            "tiers",
            NOTE,
            f"{named([f'{name} ({env})' for name, env, _ in found.rows], found.found)}: a "
            "downgrade tier on a budget of tokens alone saves money, not tokens",
            "give the budget a monthly_cost too, or take downgrade_model away: " + APPLY,
        )
    ]
