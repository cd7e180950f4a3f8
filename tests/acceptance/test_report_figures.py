"""The report of replayed traffic, figure by figure against a spreadsheet made from the ledger's rows.

The packaged trace, stretched over two months of Shanghai's, with made-up labels, budgets and
outcomes. The same over whole traces, such as the Azure LLM inference trace of 2023:

    QUOTA_REPORT_TRACES=/path/to/conv.csv:/path/to/code.csv python -m pytest -s \
        tests/acceptance/test_report_figures.py
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from acceptance.alerts_world import CHANNELS
from acceptance.program import quota_worker
from acceptance.spreadsheet import Allowance, Book, Line
from acceptance.spreadsheet_report import Sheet
from acceptance.test_replay_ledger import TINY, trace_rows

from sql.calls import Calls
from sql.rolling import legacy

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

ZONE = ZoneInfo("Asia/Shanghai")
SEPTEMBER, OCTOBER, NOVEMBER = (date(2026, month, 1) for month in (9, 10, 11))
NAMES = {"sales": "Sales 销售", "ops": "ops", "lab": "Lab", "solo": "Solo", "idle": "idle"}
# department, and the share of traffic that its tenants have
OWNERS = ["sales"] * 10 + ["ops"] * 9 + ["lab"] * 3 + ["solo"] * 2 + [""] * 2
TENANTS = [f"{owner or 'lone'}-{n}" for n, owner in enumerate(OWNERS)]
TESTERS = {"sales-9", "lab-21"}
APPS = [f"app-{n}" for n in range(13)] + [""]
MODELS = ["large", "medium", *(f"model-{n}" for n in range(11)), ""]
NANOS = {SEPTEMBER: (3000, 15000), OCTOBER: (2500, 16000)}
OUTCOMES = """month,department_id,metric,value
2026-09,sales,orders,1200
2026-09,ops,orders,333.5
2026-09,ops,tickets,70
2026-09,lab,orders,7
2026-10,sales,orders,1501
2026-10,sales,gmv,84120.55
2026-10,ops,orders,401.25
2026-10,ops,gmv,0
2026-10,lab,orders,9
2026-10,solo,orders,0
2026-10,sales,leads,77
2026-10,idle,orders,5
"""
PATHS = os.environ.get("QUOTA_REPORT_TRACES")
TRACES = [Path(path) for path in PATHS.split(os.pathsep)] if PATHS else [TINY]


def pick(what: str, index: int, among: list[str], skew: float = 1.5) -> str:
    """One of them by chance, the first ones more often where the skew is above 1."""
    digest = hashlib.sha256(f"{what} {index}".encode()).digest()
    return among[int(len(among) * (int.from_bytes(digest[:6], "big") / 2**48) ** skew)]


def write_trace(month: date, file: Path) -> dict[str, int]:
    """The traces' requests over the whole month, first to last microsecond; cost by department."""
    begins = datetime(month.year, month.month, 1, tzinfo=ZONE)
    ends = datetime(month.year, month.month + 1, 1, tzinfo=ZONE) - timedelta(microseconds=1)
    planned: dict[str, int] = dict.fromkeys(OWNERS, 0)
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(("timestamp", "input_tokens", "output_tokens", "tenant", "model", "app"))
        for number, path in enumerate(TRACES):
            rows = trace_rows(path)
            first, last = rows[0][0], rows[-1][0]
            for index, (at, tokens_in, tokens_out, _) in enumerate(rows):
                key = f"{month} {number}"
                tenant = pick(f"{key} tenant", index, TENANTS, 1)
                app = pick(f"{key} app", index, APPS)
                model = pick(f"{key} model", index, MODELS)
                now = (begins + (ends - begins) * ((at - first) / (last - first))).astimezone(UTC)
                writer.writerow(
                    (f"{now:%Y-%m-%d %H:%M:%S.%f}", tokens_in, tokens_out, tenant, model, app)
                )
                nanos_in, nanos_out = NANOS[month]
                if tenant not in TESTERS:
                    planned[OWNERS[TENANTS.index(tenant)]] += tokens_in * nanos_in
                    planned[OWNERS[TENANTS.index(tenant)]] += tokens_out * nanos_out
    return planned


class World:
    """Two months of replayed traffic, and the book of what a report must say of them."""

    def __init__(self, dsn: str, conn: Connection, folder: Path) -> None:
        self.dsn, self.conn, self.folder = dsn, conn, folder
        self.calls = Calls(conn)
        self.book = Book(ZONE.key, "CNY", NAMES, [])
        self.lone: list[Line] = []  # charges without a request
        self.environ = {"QUOTA_WORKER_CONFIG": str(folder / "quota-worker.toml")}
        (folder / "quota-worker.toml").write_text(CHANNELS + '[report]\nchannel = "mail"\n')

    async def run(self, *arguments: str) -> str:
        done = await quota_worker(self.dsn, *arguments, **self.environ)
        assert done.code == 0, (arguments, done.err)
        return done.out

    async def begin(self) -> None:
        await self.conn.execute(
            "UPDATE quota_settings SET billing_zone = $1, currency = 'CNY'", ZONE.key
        )
        for of, name in NAMES.items():
            await self.calls.put("departments", {"department_id": of, "name": name})
        for name, of in zip(TENANTS, OWNERS, strict=True):
            where = "test" if name in TESTERS else "production"
            await self.calls.tenant(
                name, department_id=of or None, environment=where, bucket_capacity=1e9
            )
        (self.folder / "outcomes.csv").write_text(OUTCOMES, encoding="utf-8")
        await self.run("outcomes", "import", str(self.folder / "outcomes.csv"))
        for line in OUTCOMES.splitlines()[1:]:
            month, of, metric, value = line.split(",")
            when = date.fromisoformat(f"{month}-01")
            self.book.outcomes.setdefault((when, of), {})[metric] = Fraction(value)

    async def allow(self, month: date, of: str, where: str, **given: int) -> None:
        """A budget and a top-up of the month: tokens, cents, more_tokens, more_cents."""
        self.book.budgets[month, of, where] = allowance = Allowance(**given)
        await self.conn.execute(
            "DELETE FROM department_budgets WHERE (department_id, environment) = ($1, $2)",
            of,
            where,
        )
        if {"tokens", "cents"} & set(given):
            budget = {"monthly_tokens": allowance.tokens, "monthly_cost_cents": allowance.cents}
            down = {"downgrade_model": "small", "warn_pct": 50, "downgrade_pct": 60}
            await self.calls.department(of, where, **budget, **down)
        if {"more_tokens", "more_cents"} & set(given):
            begins = datetime(month.year, month.month, 1, tzinfo=ZONE)
            await self.calls.top_up(
                *(of, allowance.more_tokens, allowance.more_cents, f"{month} {where}"),
                datetime(month.year, month.month + 1, 1, tzinfo=ZONE),
                environment=where,
                now=begins,
            )

    async def month(self, month: date, seed: int) -> dict[str, Any]:
        """The month's traffic: the traces', and what replays have none of."""
        trace = self.folder / f"{month}.csv"
        cents = {of: nanos // 10**7 for of, nanos in write_trace(month, trace).items()}
        await self.allow(
            month, "sales", "production", cents=cents["sales"] * 17 // 20, more_cents=9
        )
        await self.allow(month, "ops", "production", tokens=10**10, more_tokens=5, cents=10**6)
        await self.allow(month, "lab", "production", more_cents=77)
        await self.allow(month, "idle", "test", tokens=0, cents=1)
        if month == OCTOBER:
            await self.allow(month, "sales", "test", cents=10**5)
            await self.allow(month, "solo", "production", tokens=10**9)
        nanos_in, nanos_out = map(str, NANOS[month])
        said = await self.run(
            *("replay", str(trace), "--json", "--seed", str(seed), "--run-id", f"r{month:%m}"),
            *("--lose-usage", "0.06", "--abort", "0.15", "--progress-every", "100"),
            *("--cost-in", nanos_in, "--cost-out", nanos_out),
        )
        # lost and charged by estimate, but for usage that came while the month was open
        begins = datetime(month.year, month.month, 1, tzinfo=ZONE)
        late = ("ops-10", f"late {month}", (70, 60, 50))
        await self.calls.reserve(*late, app="app-1", ttl_seconds=60, now=begins)
        ended = await self.calls.expire(1, now=begins + timedelta(minutes=2))
        assert [row["tenant_id"] for row in ended] == ["ops-10"]
        await self.calls.settle(*late[:2], (71, 61, 51), now=begins + timedelta(hours=1))
        noon = datetime(month.year, month.month, 9, 12, tzinfo=ZONE)
        for number, (name, cost) in enumerate((("ops-10", 123), ("solo-22", None), ("lone-24", 5))):
            request, now = f"extra {month} {name}", noon + timedelta(days=number)
            await self.calls.reserve(name, request, (900, 90, 999), model="large", now=now)
            await self.calls.settle(name, request, (800, 80, cost), cached=700, now=now)
            await self.calls.reserve(name, f"{request} back", (30, 3, 99), app="app-0", now=now)
            await self.calls.release(name, f"{request} back", now=now)
            amounts = (50 + number, 7, 3_000_001 * 10)
            await legacy(self.conn, name, amounts, now)
            cells = dict(
                zip(("completions", "input_tokens", "output_tokens"), (1, *amounts), strict=False)
            )
            of = OWNERS[TENANTS.index(name)]
            cells["cost_nanos"] = amounts[2]
            self.lone.append(Line(month, now.date(), of, "production", name, "", "", cells))
        summary: dict[str, Any] = json.loads(said)
        return summary

    async def close(self, now: datetime) -> None:
        for _ in range(2):
            await self.run(
                "tick", "--jobs", "reconcile,roll_month,roi_report", "--as-of", now.isoformat()
            )
            now += timedelta(minutes=5)

    async def rows(self, month: date) -> dict[tuple[str, str], Line]:
        """The month's requests as the ledger has them now."""
        found = {}
        for row in await self.conn.fetch("SELECT * FROM quota_reservations"):
            day = row["admitted_at"].astimezone(ZONE).date()
            if day.replace(day=1) != month:
                continue
            assert row["ended_at"] is not None
            charged_in, charged_out = row["charged_in_tokens"], row["charged_out_tokens"]
            stale = row["state"] == "expired" and not row["late"]
            down = None not in {row["requested_model"], row["answered_model"]}
            down = down and row["requested_model"] != row["answered_model"]
            cells = {
                "completions": int(row["completion_counted"]),
                "input_tokens": charged_in,
                "cached_in_tokens": row["cached_in_tokens"] or 0,
                "output_tokens": charged_out,
                "cost_nanos": row["charged_cost_nanos"],
                "stale_count": int(stale),
                "stale_cost_nanos": row["charged_cost_nanos"] if stale else 0,
                "released_count": int(not row["completion_counted"]),
                "unpriced_count": int(row["unpriced"]),
                "downgraded_count": int(down),
                "downgraded_tokens": charged_in + charged_out if down else 0,
            }
            found[row["tenant_id"], row["request_id"]] = Line(
                *(month, day, row["department_id"] or "", row["environment"], row["tenant_id"]),
                *(row["model"] or "", row["app"] or "", cells),
            )
        return found

    async def correct_late(self, now: datetime) -> None:
        """Usage of September that comes when it is closed: of each way that a request ended."""
        before = await self.rows(SEPTEMBER)
        for state in ("expired", "released", "settled"):
            rows = await self.conn.fetch(
                "SELECT tenant_id, request_id FROM quota_reservations WHERE state = $1 AND period < $2"
                " AND unreserved IS FALSE ORDER BY (state = 'released' AND charged_in_tokens = 0) DESC, 2 LIMIT 2",
                *(state, OCTOBER),
            )
            assert len(rows) == 2
            for number, row in enumerate(rows):
                usage = (1000 + number, 99, 5_000_000 * number + 1)
                await self.calls.settle(*row, usage, usage_id=f"late {number}", now=now)
        for key, line in (await self.rows(SEPTEMBER)).items():
            names = ("completions", "input_tokens", "output_tokens", "cost_nanos")
            cells = {name: line.cells[name] - before[key].cells[name] for name in names}
            if any(cells.values()):
                self.book.lines.append(
                    Line(
                        *(OCTOBER, line.day, line.department, line.environment),
                        *(line.tenant, line.model, line.app, cells),
                    )
                )

    async def stored(self, month: date, department: str) -> dict[str, Any]:
        text = await self.conn.fetchval(
            "SELECT summary::text FROM quota_reports WHERE (month, department_id, revision) = ($1, $2, 1)",
            *(month, department),
        )
        assert text is not None, (month, department)
        report: dict[str, Any] = json.loads(text)
        return report


# no name here is of digits alone: what looks like a number is one
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def figures(value: Any) -> Any:
    """The report's JSON with its numbers as fractions and its reasons as words."""
    if isinstance(value, dict):
        if set(value) == {"exact", "decimal"}:
            exact = Fraction(value["exact"])
            assert abs(exact - Fraction(value["decimal"])) <= Fraction(1, 2 * 10**12)
            return exact
        if set(value) == {"reason"}:
            return value["reason"]
        return {key: figures(one) for key, one in value.items()}
    if isinstance(value, list):
        return [figures(one) for one in value]
    return Fraction(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value


def differences(told: Any, right: Any, path: str = "") -> tuple[int, list[str]]:
    """How many figures there are, and each that differs."""
    if isinstance(told, dict) and isinstance(right, dict) and set(told) == set(right):
        pairs = [(told[key], right[key], f"{path}.{key}") for key in right]
    elif isinstance(told, list) and isinstance(right, list) and len(told) == len(right):
        pairs = [(*both, f"{path}[{n}]") for n, both in enumerate(zip(told, right, strict=True))]
    else:
        return 1, [] if told == right else [f"{path}: told {told}, right {right}"]
    seen = [differences(*pair) for pair in pairs]
    return sum(count for count, _ in seen), [one for _, found in seen for one in found]


def assert_suggestions(report: dict[str, Any], sheet: Sheet) -> None:
    """Each saving is what its formula gives of its numbers; a stale one is the app's stale cost."""
    for one in report["suggestions"]:
        numbers = {number["name"]: number["value"] for number in one["numbers"]}
        formula = re.sub(r"\b\d+\b", lambda found: f"Fraction({found[0]})", one["formula"])
        assert one["saving_nanos"] == eval(formula, {"Fraction": Fraction}, numbers)  # noqa: S307
        if one["kind"] == "stale":
            of = [line for line in sheet.lines if line.app == one["app"]]
            assert one["saving_nanos"] == sum(line.cells.get("stale_cost_nanos", 0) for line in of)


@pytest.mark.parametrize("_traces", [",".join(path.name for path in TRACES)])
async def test_each_figure_of_replayed_months_is_that_of_a_spreadsheet(
    dsn: str, conn: Connection, tmp_path: Path, _traces: str
) -> None:
    world = World(dsn, conn, tmp_path)
    book = world.book
    await world.begin()
    said = [await world.month(SEPTEMBER, 3)]
    await world.close(datetime(2026, 10, 4, tzinfo=ZONE))
    book.recorded.append(SEPTEMBER)
    book.lines += (await world.rows(SEPTEMBER)).values()
    said.append(await world.month(OCTOBER, 4))
    await world.correct_late(datetime(2026, 10, 20, tzinfo=ZONE))
    await world.close(datetime(2026, 11, 4, tzinfo=ZONE))
    book.recorded.append(OCTOBER)
    book.lines += (await world.rows(OCTOBER)).values()
    book.lines += world.lone

    # what the report is to be judged by has everything in it
    ranked = Sheet(book, OCTOBER, None).incentives("orders")
    assert (ranked["of"], ranked["too_few"]) == (2, 1) or PATHS
    seen = Sheet(book, OCTOBER, None).own
    assert all(seen.values()), seen
    assert {"sales"} <= {
        line.department for line in book.lines if line.cells.get("downgraded_count")
    }
    assert said[1]["reasons"]["ok"] < said[1]["asked"]["requests"]

    compared = 0
    for month in book.recorded:
        for department in (None, *NAMES):
            told = figures(await world.stored(month, department or ""))
            sheet = Sheet(book, month, department)
            assert_suggestions(told, sheet)
            del told["suggestions"]
            right = sheet.report()
            count, found = differences(told, right)
            assert found == [], (month, department, len(found))
            compared += count
    # both months' totals are the ledger's, to the nano
    totals = [Sheet(book, month, None).ledger()["total"] for month in book.recorded]
    used = await conn.fetchrow(
        "SELECT sum(completions)::bigint, sum(input_tokens)::bigint, sum(output_tokens)::bigint,"
        " sum(cost_cents::numeric * 10000000 + cost_subcent_nanos)::bigint FROM quota_usage"
    )
    assert used is not None
    names = ("completions", "input_tokens", "output_tokens", "cost_nanos")
    assert tuple(used) == tuple(sum(total[name] for total in totals) for name in names)
    shown = await world.run("report", "--month", "2026-10", "--format", "json")
    assert json.loads(shown) == await world.stored(OCTOBER, "")
    assert compared > 10_000
    if PATHS:
        own = Sheet(book, OCTOBER, None).own
        print(f"\n{compared} figures compared; October: {own}")  # noqa: T201  it was asked for
