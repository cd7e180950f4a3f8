"""The machine's rules for requests: admission, endings, replays, late usage.

`quota_check_and_charge` alone lives on the true clock; its tenant has a bucket
too wide to matter.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from model.days import day_of
from model.ledger import amount
from model.records import Usage
from sql.comparing import compare_answer
from sql.machine_base import (
    LedgerBase,
    amounts,
    models,
    priorities,
    skews,
    tenants,
    tokens,
    usage_ids,
)


class RequestRules(LedgerBase):
    """Every function of the contract that a gateway calls."""

    # admission --------------------------------------------------------------------

    @rule(
        tenant=tenants,
        sums=amounts,
        model=models,
        priority=priorities,
        ttl=st.sampled_from([None, None, 30, 900]),
        skew=skews,
    )
    def reserve(
        self, tenant: str, sums: Any, model: str, priority: str, ttl: int | None, skew: int
    ) -> None:
        self.reserve_one(tenant, sums, model, priority, ttl, skew)

    def reserve_one(
        self,
        tenant: str,
        sums: Any,
        model: str,
        priority: str,
        ttl: int | None = None,
        skew: int = 0,
    ) -> None:
        self.ids += 1
        key = (tenant, f"r{self.ids}")
        now = self.now - timedelta(seconds=skew)
        pair = self.both(
            self.calls.reserve(
                *key, sums, model=model, priority=priority, ttl_seconds=ttl, now=now
            ),
            lambda: self.model.reserve(
                *key, sums, now, model=model, priority=priority, ttl_seconds=ttl
            ),
        )
        assert pair is not None
        row, expected = pair
        enforce = self.model.tenants[tenant].enforce if tenant in self.model.tenants else "on"
        compare_answer(row, expected, enforce)
        if expected.allowed:
            self.keys.append(key)
            if enforce == "on":
                self.check_admission(tenant, now)

    @rule(
        tenant=tenants,
        burst=st.lists(st.tuples(amounts, priorities), min_size=2, max_size=6),
        model=models,
    )
    def reserve_several(self, tenant: str, burst: list[Any], model: str) -> None:
        """Towards caps and thresholds faster than one by one."""
        for sums, priority in burst:
            self.reserve_one(tenant, sums, model, priority)

    @rule(tenant=st.sampled_from(["a", "b"]), sums=amounts, priority=priorities)
    def reserve_in_department(self, tenant: str, sums: Any, priority: str) -> None:
        self.reserve_one(tenant, sums, "big", priority)

    def check_admission(self, tenant: str, now: datetime) -> None:
        """Invariant 5: right after an admission nothing is over its cap."""
        day = day_of(now, self.model.zone)
        after = self.model.day_used(tenant, day), self.model.month_used(tenant, day)
        for reason, dimension, cap in self.model.tenants[tenant].caps():
            used = after[reason.startswith("monthly")]
            value = amount(used, dimension)
            assert cap is None or value <= cap, reason

    def some_key(self, data: st.DataObject) -> tuple[str, str]:
        """Any request, every second time one that is still open."""
        still = [key for key in self.keys if self.model.reservations[key].state == "open"]
        chosen = self.keys
        if still and bool(data.draw(st.booleans(), label="open")):
            chosen = still
        key: tuple[str, str] = data.draw(st.sampled_from(chosen), label="request")
        return key

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), other=st.booleans(), skew=skews)
    def reserve_again(self, data: st.DataObject, other: bool, skew: int) -> None:  # noqa: FBT001
        key = self.some_key(data)
        known = self.model.reservations[key]
        sums = known.estimate.figures
        if other:
            sums = (sums[0] + 1, sums[1], sums[2])
        now = self.now - timedelta(seconds=skew)
        pair = self.both(
            self.calls.reserve(*key, sums, model=known.requested_model, now=now),
            lambda: self.model.reserve(*key, sums, now, model=known.requested_model),
        )
        if pair is not None:
            row, expected = pair
            if known.unreserved:
                assert row["allowed"]
                assert row["replayed"]
            else:
                limits = self.model.tenants.get(key[0])
                compare_answer(row, expected, "on" if limits is None else limits.enforce)

    @rule(sums=st.tuples(tokens, tokens, st.sampled_from([0, 1, 2])))
    def check_and_charge(self, sums: Any) -> None:
        clock = datetime.now(tz=UTC)
        answer, expected = self.both(
            self.calls.check_and_charge("legacy", *sums),
            lambda: self.model.check_and_charge("legacy", sums[0], sums[1], sums[2], clock),
        ) or (None, None)
        assert answer == expected

    # endings ----------------------------------------------------------------------

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), sums=amounts, usage_id=usage_ids, kind=st.integers(0, 9))
    def settle(self, data: st.DataObject, sums: Any, usage_id: str | None, kind: int) -> None:
        key = self.some_key(data)
        known = self.model.reservations[key]
        if kind == 0:
            sums, usage_id = (None, None, None), None
        elif kind == 1 and known.estimate.tokens > 0 and known.state == "open":
            sums, usage_id = (sums[0], sums[1], None), None
        elif kind == 2:
            sums = known.used.figures
        elif sums == (0, 0, 0) and known.state in ("released", "expired"):
            sums = (1, 0, 0)  # zeros after a release: the contract leaves the word open
        self.settled(key, sums, usage_id)

    @rule(tenant=tenants, sums=amounts, usage_id=usage_ids, known=st.booleans())
    def settle_unreserved(
        self,
        tenant: str,
        sums: Any,
        usage_id: str | None,
        known: bool,  # noqa: FBT001
    ) -> None:
        self.ids += 1
        key = (tenant if known else "nobody", f"s{self.ids}")
        self.settled(key, sums, usage_id)
        if key in self.model.reservations:
            self.keys.append(key)

    def settled(self, key: tuple[str, str], sums: Any, usage_id: str | None) -> None:
        now = self.now
        pair = self.both(
            self.calls.settle(*key, sums, usage_id=usage_id, now=now),
            lambda: self.model.settle(*key, sums, now, usage_id=usage_id),
        )
        if pair is not None:
            row, expected = pair
            assert row["outcome"] in expected.accepts, f"{row}, model {expected}"
            charged = (row["in_tokens"], row["out_tokens"], row["cost_nanos"])
            assert charged == expected.charge.figures

    @precondition(lambda self: self.keys)
    @rule(
        data=st.data(), sums=st.sampled_from([(0, 0, 0)] * 3 + [(3, 0, 0), (5, 9, 77), (0, 0, 1)])
    )
    def release(self, data: st.DataObject, sums: Any) -> None:
        key = self.some_key(data)
        outcome = self.wait(self.calls.release(*key, sums, now=self.now))
        row = self.wait(self.calls.reservation(*key))
        charged = None
        if row["state"] != "open":
            charged = Usage(
                row["charged_in_tokens"],
                row["charged_out_tokens"],
                row["charged_cost_nanos"],
                int(row["completion_counted"]),
            )
        expected = self.model.release(*key, sums, self.now, charged=charged)
        assert outcome in expected.accepts, f"{outcome}, model {expected}"

    @rule(tenant=tenants)
    def release_unknown(self, tenant: str) -> None:
        assert self.wait(self.calls.release(tenant, "never", now=self.now)) == "unknown"

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), out=tokens, skew=skews)
    def progress(self, data: st.DataObject, out: int, skew: int) -> None:
        key = self.some_key(data)
        now = self.now - timedelta(seconds=skew)
        self.wait(self.calls.progress(*key, out, now=now))
        self.model.progress(*key, out, now)

    @rule(limit=st.sampled_from([1, 2, 1000, 1000]))
    def expire(self, limit: int) -> None:
        due = self.model.overdue(self.now)
        rows = self.wait(self.calls.expire(limit, now=self.now))
        gone = self.wait(
            self.calls.rows(
                "SELECT tenant_id, request_id FROM quota_reservations WHERE state = 'expired'"
            )
        )
        before = {k for k, one in self.model.reservations.items() if one.state == "expired"}
        chosen = {(r["tenant_id"], r["request_id"]) for r in gone} - before
        places = {(one.tenant, one.request_id): one for one in due}
        assert chosen <= places.keys(), "a reservation ended early"
        assert len(chosen) == min(limit, len(due)), "an overdue reservation was left"
        left = [one.expires_at for key, one in places.items() if key not in chosen]
        if chosen and left:
            assert max(places[key].expires_at for key in chosen) <= min(left), "not oldest first"
        totals: dict[tuple[str, str], list[int]] = {}
        for one in self.model.expire(chosen):
            sums = totals.setdefault((one.tenant, one.policy), [0, 0, 0, 0])
            for place, value in enumerate((1, *one.charge.figures)):
                sums[place] += value
        answered: dict[tuple[str, str], list[int]] = {}
        for row in rows:
            sums = answered.setdefault((row["tenant_id"], row["policy"]), [0, 0, 0, 0])
            for place, name in enumerate(("ended", "in_tokens", "out_tokens", "cost_nanos")):
                sums[place] += int(row[name])
        assert answered == totals
