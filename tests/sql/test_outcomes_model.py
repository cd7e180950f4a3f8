"""Random imports against a model of what a file replaces: values in force, history, counts."""

from __future__ import annotations

import os
import random
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from worker.assets import Assets
from worker.errors import UsageError
from worker.outcomes.shape import Outcome
from worker.postgres.outcomes import PostgresOutcomes
from worker.postgres.queries import load_queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg

Key = tuple[date, str, str]  # month, metric, department
IMPORTS = 40


def random_file(random_: random.Random) -> dict[Key, Decimal]:
    keys = [
        (date(2026, month, 1), metric, department)
        for month in (9, 10)
        for metric in ("orders", "gmv")
        for department in "abc"
    ]
    chosen = random_.sample(keys, random_.randint(1, 6))
    return {key: Decimal(random_.choice(["0", "1", "1.0", "2.50"])) for key in chosen}


async def test_random_imports_leave_what_the_model_has(conn: asyncpg.Connection[Any]) -> None:
    seed = int(os.environ.get("QUOTA_WORKER_SEED", "0")) or random.SystemRandom().randrange(10**9)
    print(f"QUOTA_WORKER_SEED={seed}")  # noqa: T201  shown where the test fails
    random_ = random.Random(seed)  # noqa: S311  nothing secret
    outcomes = PostgresOutcomes(conn, load_queries(Assets(), "outcomes"))
    model: dict[Key, Decimal] = {}
    history: list[tuple[Key, Decimal]] = []
    for _ in range(IMPORTS):
        file, keep = random_file(random_), random_.random() < 0.4
        dry_run, fails = random_.random() < 0.2, random_.random() < 0.1
        rows = [
            Outcome(line, month, department, metric, value)
            for line, ((month, metric, department), value) in enumerate(file.items(), 2)
        ]
        named = {key[:2] for key in file}
        gone = set() if keep else {k for k in model if k[:2] in named and k not in file}
        changed = {k for k in file if k in model and model[k] != file[k]}
        added = file.keys() - model.keys()
        try:
            async with outcomes.drafting(dry_run=dry_run) as draft:
                await draft.add(rows)
                done = await draft.apply("f.csv", "0" * 64, keep_others=keep)
                removed = await draft.removed(done.import_id, 100)
                if fails:
                    raise LookupError  # noqa: TRY301  whatever it is, nothing is kept
                await draft.finish()
        except LookupError:
            pass
        assert (done.rows, done.added, done.changed, done.removed) == (
            len(file), len(added), len(changed), len(gone),
        )  # fmt: skip
        assert done.unchanged == len(file) - len(added) - len(changed)
        assert set(removed) == gone
        if not (dry_run or fails):
            history += [(key, model.pop(key)) for key in (*gone, *changed)]
            model.update({key: value for key, value in file.items() if key in added | changed})
        found = await conn.fetch("SELECT month, metric, department_id, value FROM v_quota_outcomes")
        assert {(r["month"], r["metric"], r["department_id"]): r["value"] for r in found} == model
    kept = await conn.fetch(
        "SELECT o.month, o.metric, o.department_id, o.value, o.import_id, o.superseded_by FROM quota_outcomes o WHERE o.superseded_by IS NOT NULL"
    )
    assert sorted(
        ((r["month"], r["metric"], r["department_id"]), r["value"]) for r in kept
    ) == sorted(history)
    assert all(row["superseded_by"] > row["import_id"] for row in kept)
    assert await outcomes.metrics() == sorted({metric for _, metric, _ in model})
    assert await conn.fetchval("SELECT count(*) FROM quota_outcome_drafts") == 0


async def test_a_file_that_breaks_off_leaves_nothing(conn: asyncpg.Connection[Any]) -> None:
    def rows() -> Iterator[Outcome]:
        for line in range(2, 5000):
            yield Outcome(line, date(2026, 10, 1), "a", f"m{line}", Decimal(1))
        raise UsageError("it changed while it was read")

    outcomes = PostgresOutcomes(conn, load_queries(Assets(), "outcomes"))
    with pytest.raises(UsageError, match="it changed while"):
        async with outcomes.drafting(dry_run=False) as draft:
            await draft.add(rows())
    assert await conn.fetchval("SELECT count(*) FROM quota_outcome_drafts") == 0
    assert await outcomes.rows(None, None, history=True, limit=10) == []


async def test_what_a_database_must_not_hold_is_refused_by_it(
    conn: asyncpg.Connection[Any],
) -> None:
    values = {
        "quota_outcomes_month": "('a', '2026-10-02', 'm', 1, 1)",
        "quota_outcomes_value": "('a', '2026-10-01', 'm', -1, 1)",
    }
    for name, row in values.items():
        with pytest.raises(Exception, match=name):
            await conn.execute(f"INSERT INTO quota_outcomes VALUES {row}")
    with pytest.raises(Exception, match="quota_outcomes_value"):
        await conn.execute("INSERT INTO quota_outcomes VALUES ('a', '2026-10-01', 'm', 'NaN', 1)")
    await conn.execute("INSERT INTO quota_outcomes VALUES ('a', '2026-10-01', 'm', 1, 1)")
    with pytest.raises(Exception, match="quota_outcomes_in_force"):
        await conn.execute("INSERT INTO quota_outcomes VALUES ('a', '2026-10-01', 'm', 1, 2)")
