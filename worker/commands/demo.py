"""`quota-worker demo`: the product in one minute, on a database of its own.

An embedded server in a folder beside the usual one, its database made anew at each run;
POSTGRES_DSN and the configured channels are left alone. The tiny trace's hour of traffic is
laid onto the last ninety minutes, with a tick every five minutes of it and one now. Alerts
are part of the story, on stdout.
"""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from worker.answers import say
from worker.bootstrap import Deps
from worker.errors import StarterBusyError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from worker.models import JobRun
    from worker.postgres.queries import Queries
    from worker.replay import JournalLine

TICK_EVERY = timedelta(minutes=5)
LOSE_USAGE, ABORT, ESTIMATE_OUT = 0.04, 0.03, 400
CONCURRENCY = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--seed", metavar="N", type=int, default=50, help="for lost usage and hang-ups (default 50)"
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Play the demo; 0 when all went well, 1 when a job of it failed."""
    from worker.postgres.accounts import default_home
    from worker.postgres.embedded import EmbeddedServer
    from worker.postgres.queries import load_queries
    from worker.settings import Settings

    usual = default_home(deps.environ)
    home = usual.with_name(f"{usual.name}-demo")
    _heading("1  An embedded PostgreSQL, made for this demo")
    queries = load_queries(deps.assets, "demo")
    with EmbeddedServer(home, durable=False) as server, _alone(server.home):
        await _fresh_database(server.dsn_of("postgres"), queries)
        say(f"   it lives in {server.home}, reachable by a unix socket only")
        own = Deps(
            Settings(postgres_dsn=server.dsn),
            environ=deps.environ,
            assets=deps.assets,
            console=sys.stdout,
        )
        async with own:
            failed = await _Demo(own, queries, args.seed).play()
        _look_around(server.home, deps.environ)
    return 1 if failed else 0


def _look_around(home: Path, environ: Mapping[str, str]) -> None:
    """Commands that work as they stand, in the shell that the demo was called from."""
    import shlex

    without = "env -u POSTGRES_DSN " if environ.get("POSTGRES_DSN") else ""
    command = f"{without}QUOTA_WORKER_DATA={shlex.quote(str(home))} {_program()}"
    _heading("Look around")
    say(f"   {command} status tenant-abuser")
    say(f"   {command} status marketing")
    say(f"   {command} status --json")
    say(f"   {command} alerts")
    say("   The same commands work on your own database, with its address in POSTGRES_DSN:")
    say("   begin with migrate. replay runs a traffic trace of yours through it.")


class _Demo:
    """The demo's steps, in order, on an empty database."""

    def __init__(self, deps: Deps, queries: Queries, seed: int) -> None:
        self._deps = deps
        self._queries = queries
        self._seed = seed
        self._failed = False
        self._downgraded = 0
        self._zone: ZoneInfo | None = None  # of the billing, once it is chosen

    async def play(self) -> bool:
        """All steps; returns whether a job failed."""
        await self._set_up()
        await self._traffic()
        _heading("5  Who is hot now: quota-worker status")
        await self._status()
        return self._failed

    async def _set_up(self) -> None:
        from worker.postgres.migrate import Migrator

        connection = await self._deps.connection()
        result = await Migrator(connection, self._deps.assets).migrate()
        say(f"   quota-worker migrate: {', '.join(result.applied)}")
        for name in ("department", "tenants", "budget"):
            await connection.execute(self._queries[name])
        _heading("2  Five tenants, and a department that two of them share")
        say("   tenant-free     50 completions and 2.00 a day, a burst of 2, then one in 2 s")
        say("   tenant-pro      2,000 completions and 50.00 a day, a burst of 10, then 2 a second")
        say("   tenant-abuser   5 completions and 1.00 a day, a burst of 1, then one in 10 s")
        say("   marketing       1.20 a month for marketing-copy and marketing-seo together:")
        say("                   warned at 75 %, the model 'small' from 90 %, high priority only")
        say("                   from 98 %, and nothing from 100 %")

    async def _traffic(self) -> None:
        from worker.clock import monotonic_seconds, utc_now
        from worker.periods import load_zone
        from worker.postgres.queries import load_queries
        from worker.postgres.traffic import PostgresTraffic
        from worker.replay import Pace, Replay
        from worker.replay_plan import ReplayOptions, plan_requests
        from worker.replay_trace import parse_trace

        pool = await self._deps.pool()
        now = utc_now()
        self._zone = load_zone(await pool.fetchval(self._queries["zone"], now))
        begin: datetime = await pool.fetchval(self._queries["begin"], now)
        options = ReplayOptions(
            run_id="demo",
            seed=self._seed,
            lose_usage=LOSE_USAGE,
            abort=ABORT,
            estimate_out=ESTIMATE_OUT,
            start_at=begin,
        )
        planned = plan_requests(parse_trace(tiny_trace(), "tiny.csv"), options)
        traffic = PostgresTraffic(pool, load_queries(self._deps.assets, "traffic"))
        tenants = sorted({request.ask.tenant_id for request in planned})
        replay = Replay(
            planned,
            await traffic.lanes(tenants),
            traffic,
            Pace(planned[0].at, None, monotonic_seconds),
            concurrency=CONCURRENCY,
            progress_every=options.progress_every,
            on_decided=self._decided,
        )
        _heading(f"3  {len(planned)} model calls in seventy minutes, and a tick every five")
        say("   each call is reserved at its estimate, streamed, and settled at its usage; in")
        say(f"   {LOSE_USAGE:.0%} the usage never comes, in {ABORT:.0%} the caller hangs up.")
        say("   An alert is told once; where several thresholds were passed since the last")
        say("   tick, the highest one speaks for those below it\n")
        at, end = begin + TICK_EVERY, planned[-1].at
        before: dict[str, int] = {}
        while at <= end + TICK_EVERY:  # bounded by the trace's length
            await replay.advance(at)
            self._tell_window(at, before, before := dict(replay.summary.reasons))
            self._tell_expired(at, await self._tick(at))
            at += TICK_EVERY
        await replay.advance()
        holds = await pool.fetchval(self._queries["open_holds"])
        _heading(f"4  The traffic is over; {holds} holds wait for usage that will never come")
        # a hold lasts ten minutes after its last sign of life; then a tick gives it back
        self._tell_expired(now, await self._tick(now, diagnose=True))
        left = await pool.fetchval(self._queries["open_holds"])
        say(f"          {left} holds are left: nothing stays blocked by a call that is gone")

    def _decided(self, line: JournalLine) -> None:
        asked, answered = line.request.ask.model, line.decision.model
        self._downgraded += line.decision.allowed and answered != asked

    def _tell_window(self, at: datetime, before: dict[str, int], after: dict[str, int]) -> None:
        fresh = {reason: number - before.get(reason, 0) for reason, number in after.items()}
        parts = [f"{fresh.pop('ok', 0):3d} admitted"]
        if self._downgraded:
            parts.append(f"{self._downgraded} of them with the smaller model")
        refused = ", ".join(
            f"{number} {reason}" for reason, number in sorted(fresh.items()) if number
        )
        if refused:
            parts.append(f"refused: {refused}")
        say(f"   {self._time(at)}  {'; '.join(parts)}")
        self._downgraded = 0

    def _tell_expired(self, at: datetime, runs: Sequence[JobRun]) -> None:
        expired = sum(
            number
            for job_run in runs
            for name, number in job_run.counts.items()
            if name.startswith("expired_")
        )
        if expired:
            holds = "hold" if expired == 1 else "holds"
            told = f"{expired} {holds} ran out without usage: charged as estimated"
            say(f"   {self._time(at)}      {told}")

    async def _tick(self, at: datetime, *, diagnose: bool = False) -> tuple[JobRun, ...]:
        """One tick; the diagnosis in the last one only, wherever in the trace an hour begins.

        Without the watch: which caps fall before their day ends depends on the time of day.
        """
        from worker.commands.tick import tick
        from worker.jobs.registry import JOBS

        report = await tick(
            self._deps,
            [one for one in JOBS if one.name != "watch" and (diagnose or one.name != "diagnose")],
            as_of=at,
            dry_run=False,
            always=False,
            on_run=lambda _job_run: None,
        )
        for job_run in report.runs:
            if job_run.outcome == "failed":
                self._failed = True
                say(f"   {self._time(at)}  {job_run.job} failed: {job_run.error}")
        return report.runs

    def _time(self, at: datetime) -> str:
        return f"{at.astimezone(self._zone):%H:%M}"

    async def _status(self) -> None:
        from worker.periods import load_zone
        from worker.status import render_text

        report = await (await self._deps.reports()).status(None)
        text = render_text(report, load_zone(report.billing_zone))
        say("\n".join(f"   {line}".rstrip() for line in text.splitlines()))


def tiny_trace() -> bytes:
    """The trace that ships inside the package."""
    from importlib.resources import files

    return files("worker.traces").joinpath("tiny.csv").read_bytes()


def _program() -> str:
    """How this program was called, so that what is shown can be typed."""
    import shlex

    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{shlex.quote(sys.executable)} -m worker"
    return shlex.quote(called) if called.endswith("/quota-worker") else "quota-worker"


def _heading(text: str) -> None:
    bold = ("\x1b[1m", "\x1b[0m") if sys.stdout is not None and sys.stdout.isatty() else ("", "")
    say(f"\n{bold[0]}{text}{bold[1]}")


async def _fresh_database(admin_dsn: str, queries: Queries) -> None:
    from worker.postgres.pool import connect

    connection = await connect(admin_dsn)
    try:
        for name in ("drop_database", "create_database"):
            await connection.execute(queries[name])
    finally:
        await connection.close()


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Keeps a second demo out: it would drop the first one's database."""
    import fcntl

    lock = os.open(home / "demo.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StarterBusyError("another demo runs right now: wait a minute") from None
        yield
    finally:
        os.close(lock)
