"""What of a reserve's answer the contract defines, held against the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.records import NANOS_PER_CENT

if TYPE_CHECKING:
    from model.records import Answer
    from sql.calls import Row

TOLERANCE_SECONDS = 0.01


def compare_answer(row: Row, expected: Answer, enforce: str) -> None:
    """Raises AssertionError naming the field that differs."""
    told = f"{row}\nmodel {expected}"
    for name in ("allowed", "reason", "observed_reason", "replayed"):
        assert row[name] == getattr(expected, name), f"{name}: {told}"
    assert (row["reservation_id"] is not None) == expected.allowed, f"reservation_id: {told}"
    if expected.reason == "unknown_tenant":
        return
    if enforce != "off" or not expected.allowed:
        assert row["tier"] == expected.tier, f"tier: {told}"
    if expected.allowed:
        assert row["model"] == expected.model, f"model: {told}"
    unfit = expected.reason == "department_budget_exhausted" and not expected.notice
    if not unfit:
        assert bool(row["notice"]) == expected.notice, f"notice: {told}"
    if expected.allowed:
        return
    if expected.limit_value is not None:
        assert row["limit_name"], told
        figures = (row["limit_value"], row["limit_used"])
        whole = (expected.limit_value, expected.limit_used)
        cents = tuple((value or 0) // NANOS_PER_CENT for value in whole)
        money = "cost" in expected.reason
        assert figures == whole or (money and figures[0] == cents[0]), f"limit: {told}"
    if expected.resets_at is not None:
        assert row["resets_at"] == expected.resets_at, f"resets_at: {told}"
    if expected.retry_after is not None:
        gap = abs(float(row["retry_after_seconds"]) - float(expected.retry_after))
        assert gap <= TOLERANCE_SECONDS, f"retry_after_seconds: {told}"
