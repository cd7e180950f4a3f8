"""The pairs that are measured alternately, and what the issue asks of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cluster import tell
from bench.options import BATCH_SIZE, CLIENTS, REFUSALS
from bench.pgbench import Load, PgbenchError, batch_script, run_load, script_file
from bench.results import Row, ratio_row

if TYPE_CHECKING:
    from bench.cluster import Cluster
    from bench.options import Options
    from bench.pgbench import Run

HOT_TENANT = 1
WARM_UP_SECONDS = 1
CPU_CALLS = 5_000
# Enough to make the day's row and give the storm its counter: from then on nothing may grow.
FIRST_REFUSALS = 100 * CLIENTS


@dataclass(frozen=True, slots=True)
class Side:
    """A load, the database it runs on, and the named query that counts what it has done there."""

    load: Load
    database: str
    counted_by: str | None


class Bench:
    """The measures, each a method from nothing to rows."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self.cluster = cluster
        self.options = options

    def load(self, script: str, *, hot: bool = False, clients: int = CLIENTS) -> Load:
        """A script on the one hot tenant, or evenly over all."""
        first, last = self._tenants(hot=hot)
        return Load(script, script_file(script), first, last, clients)

    def batch_load(self, *, hot: bool) -> Load:
        """Batches of 64; all elements of the hot one are of one tenant."""
        first, last = self._tenants(hot=hot)
        return Load("batch", batch_script(), first, last, mode="simple", each=BATCH_SIZE)

    def run(self, side: Side, *, seconds: int = 0, transactions: int = 0) -> Run:
        """One run; raises PgbenchError unless the ledger counts as many calls as pgbench made."""
        before = self._counted(side)
        run = run_load(
            self.cluster.pgbench,
            self.cluster.server.dsn_of(side.database),
            side.load,
            seconds=seconds,
            transactions=transactions,
        )
        counted = self._counted(side) - before
        if side.counted_by is not None and counted != run.transactions * side.load.each:
            raise PgbenchError(
                f"{side.load.name}: {run.transactions} calls, but {side.counted_by} says {counted}"
            )
        return run

    def alternate(self, ours: Side, baseline: Side) -> list[tuple[float, float]]:
        """The rates of both sides, run one after the other, who begins changing each round."""
        for side in (ours, baseline):
            self.run(side, seconds=WARM_UP_SECONDS)
        rounds: list[tuple[float, float]] = []
        for number in range(self.options.rounds):
            order = (ours, baseline) if number % 2 == 0 else (baseline, ours)
            rates = {id(side): self.run(side, seconds=self.options.seconds).rate for side in order}
            rounds.append((rates[id(ours)], rates[id(baseline)]))
            tell(
                f"  {ours.load.name} / {baseline.load.name}: {rounds[-1][0]:,.0f} / "
                f"{rounds[-1][1]:,.0f} = {rounds[-1][0] / rounds[-1][1]:.2f}"
            )
        return rounds

    def cpu(self) -> list[Row]:
        """Processor time of the server per call: steady on a machine that others use too."""
        database = self.cluster.clone()
        rows = []
        if self.cluster.value(database, "server_may_read_proc"):
            for what in ("reserve", "settle"):
                rounds = [
                    (self._cpu(database, what), self._cpu(database, "two_table"))
                    for _ in range(self.options.rounds)
                ]
                tell(
                    f"  {what}: "
                    + ", ".join(f"{ours:.0f}/{theirs:.0f} us" for ours, theirs in rounds)
                )
                title = f"server CPU per call, quota_{what} / two-table function, uniform"
                rows.append(ratio_row("cpu", title, rounds, at_most=True, unit=" us"))
        self.cluster.drop(database)
        return rows

    def floor(self) -> list[Row]:
        """For orientation: the two-table function against the bare UPDATE."""
        database = self.cluster.clone()
        rows = [
            ratio_row(
                "floor",
                f"two-table function / bare UPDATE, {where}",
                self.alternate(
                    Side(self.load("two_table", hot=hot), database, "two_table_calls"),
                    Side(self.load("floor", hot=hot), database, "floor_calls"),
                ),
            )
            for where, hot in (("one tenant", True), ("uniform", False))
        ]
        self.cluster.drop(database)
        return rows

    def hot(self) -> list[Row]:
        """quota_reserve, all on one tenant."""
        return [self._against_two_table("hot", "quota_reserve, one tenant", "reserve", 0.45, 0.7)]

    def uniform(self) -> list[Row]:
        """quota_reserve, evenly over all tenants."""
        return [
            self._against_two_table(
                "uniform", "quota_reserve, uniform", "reserve", 0.4, 0.6, hot=False
            )
        ]

    def pairs(self) -> list[Row]:
        """reserve + settle, a pair counted once, against one call of the two-table function."""
        return [
            self._against_two_table(
                "pairs",
                "reserve + settle, uniform",
                "pair",
                0.2,
                0.3,
                hot=False,
                counted_by="settled",
            )
        ]

    def batch(self) -> list[Row]:
        """Decisions in batches of 64 against single calls."""
        rows = []
        for where, hot, target, aim in (("one tenant", True, 6, 12), ("uniform", False, 1, 3)):
            database = self.cluster.clone()
            rounds = self.alternate(
                Side(self.batch_load(hot=hot), database, "reservations"),
                Side(self.load("two_table", hot=hot), database, "two_table_calls"),
            )
            what = f"quota_reserve_batch of {BATCH_SIZE}, per decision, {where}"
            rows.append(ratio_row("batch", what, rounds, target=target, aim=aim))
            self.cluster.drop(database)
        return rows

    def departments(self) -> list[Row]:
        """All tenants in one department against the same tenants in a hundred."""
        rows = []
        for clients in (CLIENTS, 4 * CLIENTS):
            one, hundred = self.cluster.clone(departments=1), self.cluster.clone()
            load = self.load("reserve", clients=clients)
            rounds = self.alternate(
                Side(load, one, "reservations"), Side(load, hundred, "reservations")
            )
            tiers = {str(self.cluster.value(name, "department_tiers")) for name in (one, hundred)}
            if tiers != {"normal"}:
                raise PgbenchError(f"departments: not below warn_pct ({', '.join(tiers)})")
            what = f"one department / 100 departments, {clients} clients"
            rows.append(ratio_row("departments", what, rounds, target=0.6))
            self.cluster.drop(one)
            self.cluster.drop(hundred)
        return rows

    def refusals(self) -> list[Row]:
        """Refusals of one tenant over its cap: their rate, and that they grow nothing."""
        database = self.cluster.clone()
        capped = self.options.tenants
        ours = Side(self._capped_load("reserve", capped), database, "refusals")
        baseline = Side(self._capped_load("two_table", capped), database, None)
        rounds = self.alternate(ours, baseline)
        rate = ratio_row("refusals", "refusals of one tenant", rounds, target=0.5, aim=1)
        self.cluster.drop(database)

        database = self.cluster.clone()
        ours = Side(ours.load, database, "refusals")
        self.run(ours, transactions=FIRST_REFUSALS)
        sizes, xid = self._sizes(database), self._next_xid(database)
        refused = self.run(ours, transactions=REFUSALS).transactions
        xids, after = self._next_xid(database) - xid, self._sizes(database)
        grown = {name: after[name] - size for name, size in sizes.items() if after[name] != size}
        self.cluster.drop(database)
        return [
            rate,
            Row(
                "refusals",
                f"bytes that {refused:,} refusals added",
                sum(grown.values()),
                target=0,
                at_most=True,
                detail="tables that grew: " + ", ".join(f"{n} {b:+,}" for n, b in grown.items())
                if grown
                else f"pg_total_relation_size of {len(sizes)} tables unchanged",
            ),
            Row(
                "refusals",
                "transaction ids per 1,000 refusals",
                1000 * xids / refused,
                target=10,
                at_most=True,
                detail=f"{xids:,} transaction ids for {refused:,} refusals, all of them counted",
            ),
        ]

    def _against_two_table(
        self,
        measure: str,
        what: str,
        script: str,
        target: float,
        aim: float,
        *,
        hot: bool = True,
        counted_by: str = "reservations",
    ) -> Row:
        database = self.cluster.clone()
        rounds = self.alternate(
            Side(self.load(script, hot=hot), database, counted_by),
            Side(self.load("two_table", hot=hot), database, "two_table_calls"),
        )
        self.cluster.drop(database)
        return ratio_row(measure, what, rounds, target=target, aim=aim)

    def _tenants(self, *, hot: bool) -> tuple[int, int]:
        return (HOT_TENANT, HOT_TENANT) if hot else (0, self.options.tenants - 1)

    @staticmethod
    def _capped_load(script: str, tenant: int) -> Load:
        return Load(script, script_file(script), tenant, tenant)

    def _cpu(self, database: str, what: str) -> float:
        return float(self.cluster.value(database, "cpu", what, CPU_CALLS, self.options.tenants))

    def _counted(self, side: Side) -> int:
        if side.counted_by is None:
            return 0
        return int(self.cluster.value(side.database, side.counted_by))

    def _sizes(self, database: str) -> dict[str, int]:
        return {row["name"]: row["bytes"] for row in self.cluster.rows(database, "table_sizes")}

    def _next_xid(self, database: str) -> int:
        return int(self.cluster.value(database, "next_transaction_id"))
