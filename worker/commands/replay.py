"""`quota-worker replay FILE.csv`: a traffic trace through the ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from worker.answers import say, say_json, tell
from worker.errors import UsageError
from worker.replay_plan import ReplayOptions

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps
    from worker.postgres.traffic import PostgresTraffic
    from worker.replay import JournalLine, ReplaySummary

MAX_CONCURRENCY = 64
MAX_TENANTS = 1_000_000
MAX_NANOS_PER_TOKEN = 1_000_000
SHOWN_TENANTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    add = parser.add_argument
    add(
        "file",
        metavar="FILE.csv",
        type=Path,
        help="columns timestamp, input_tokens, output_tokens "
        "(or ContextTokens, GeneratedTokens), optionally tenant, model, app",
    )
    add(
        "--speed",
        metavar="S",
        default="max",
        help="realtime, a number N (N times as fast), or max "
        "(default): no waiting, and the trace's own times are the ledger's clock",
    )
    add(
        "--tenants",
        metavar="N",
        type=int,
        help="spread over replay-0001 ... (default: the trace's tenant column, else one tenant)",
    )
    add(
        "--skew",
        metavar="S",
        type=float,
        default=0.0,
        help="the k-th tenant gets a share of 1/k^S (default 0: all alike)",
    )
    add("--create-tenants", action="store_true", help="add missing tenants with the default limits")
    add(
        "--lose-usage",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="share of streams whose usage never comes, such as 0.03",
    )
    add(
        "--abort",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="share of streams whose caller hangs up, such as 0.02",
    )
    add("--seed", metavar="N", type=int, default=1, help="for every chance (default 1)")
    add("--start-at", metavar="T", help="shift the trace so that it begins then")
    add("--cost-in", metavar="NANOS", type=int, default=3000, help="per input token (default 3000)")
    add(
        "--cost-out",
        metavar="NANOS",
        type=int,
        default=15000,
        help="per output token (default 15000)",
    )
    add(
        "--estimate-out",
        metavar="TOKENS",
        type=int,
        default=256,
        help="output tokens that each reservation holds (default 256)",
    )
    add(
        "--progress-every",
        metavar="TOKENS",
        type=int,
        default=200,
        help="report progress after so many output tokens (default 200; 0: never)",
    )
    add("--concurrency", metavar="N", type=int, default=8, help="calls at a time (default 8)")
    add(
        "--run-id",
        metavar="ID",
        help="begins every request id (default: file name and seed); "
        "the same one again charges nothing twice",
    )
    add("--journal", metavar="OUT.csv", type=Path, help="write each request's plan and decision")
    add("--json", action="store_true", help="write the summary as JSON")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Check everything, then send; exit 0 also when requests were refused."""
    from worker.clock import monotonic_seconds
    from worker.postgres.pool import open_pool
    from worker.postgres.queries import load_queries
    from worker.postgres.traffic import PostgresTraffic
    from worker.replay import Pace, Replay
    from worker.replay_plan import plan_requests
    from worker.replay_trace import read_trace

    speed = _speed(args.speed)
    options = _options(args)
    _refuse_own_input(args.file, args.journal)
    planned = plan_requests(read_trace(args.file), options)
    pool = await open_pool(deps.dsn(), max_size=args.concurrency)
    try:
        traffic = PostgresTraffic(pool, load_queries(deps.assets, "traffic"))
        tenants = sorted({request.ask.tenant_id for request in planned})
        await traffic.lanes([])  # in a database without our columns nothing is created
        await prepare_tenants(traffic, tenants, create=args.create_tenants)
        journal = _Journal(args.journal)
        progress = _ProgressBar(len(planned))

        def decided(line: JournalLine) -> None:
            journal.write(line)
            progress.step()

        replay = Replay(
            planned,
            await traffic.lanes(tenants),
            traffic,
            Pace(planned[0].at, speed, monotonic_seconds),
            concurrency=args.concurrency,
            progress_every=options.progress_every,
            on_decided=decided,
        )
        started = monotonic_seconds()
        try:
            await replay.advance()
        finally:
            progress.close()
            journal.close()
        seconds = monotonic_seconds() - started
    finally:
        await pool.close()
    if args.json:
        say_json(
            {
                "run_id": options.run_id,
                "seed": options.seed,
                "tenants": len(tenants),
                "seconds": round(seconds, 3),
                **replay.summary.as_dict(),
            }
        )
    else:
        say(summary_text(replay.summary, len(tenants), seconds))
    return 0


async def prepare_tenants(traffic: PostgresTraffic, tenants: list[str], *, create: bool) -> None:
    """Make sure that every tenant has limits; raises UsageError naming those without."""
    missing = list(await traffic.missing_tenants(tenants))
    if not missing:
        return
    if create:
        await traffic.create_tenants(missing)
        return
    names = ", ".join(ascii(name) for name in missing[:SHOWN_TENANTS])
    more = f" and {len(missing) - SHOWN_TENANTS} more" if len(missing) > SHOWN_TENANTS else ""
    raise UsageError(f"no limits for {names}{more}: add --create-tenants, or rows to tenant_limits")


def summary_text(summary: ReplaySummary, tenants: int, seconds: float) -> str:
    """For people: decisions by reason, then what became of the admitted."""
    from worker.money import nanos_to_decimal
    from worker.status_text import table

    asked = summary.asked.requests
    lines = [
        f"{_counted(asked, 'request')} of {_counted(tenants, 'tenant')} in {seconds:.1f} s",
        "",
    ]
    rows = [
        (reason, f"{number:,}", f"{100 * number / max(asked, 1):.1f} %")
        for reason, number in sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0]))
    ]
    rows += [
        (f"observed: {reason}", f"{number:,}", f"{100 * number / max(asked, 1):.1f} %")
        for reason, number in sorted(summary.observed.items())
    ]
    lines += [table(("decision", "requests", "share"), rows, frozenset({1, 2})), ""]
    sums = [
        (
            name,
            f"{part.requests:,}",
            f"{part.in_tokens:,}",
            f"{part.out_tokens:,}",
            f"{nanos_to_decimal(part.cost_nanos):,.4f}",
            meaning,
        )
        for name, part, meaning in (
            ("admitted", summary.admitted, "estimates held at first"),
            ("settled", summary.settled, "usage posted"),
            ("aborted", summary.aborted, "consumed before the caller hung up"),
            ("lost", summary.lost, "estimates held until they expire"),
            ("refused", summary.refused, "estimates turned away"),
        )
    ]
    lines.append(
        table(("", "requests", "input", "output", "cost", ""), sums, frozenset({1, 2, 3, 4}))
    )
    if summary.replayed:
        known = _counted(summary.replayed, "request")
        lines += ["", f"{known} known already: charged once (--run-id NAME: a fresh run)"]
    if summary.lock_retries:
        calls = _counted(summary.lock_retries, "call")
        lines.append(f"waited for a busy row and repeated: {calls}")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _options(args: argparse.Namespace) -> ReplayOptions:
    from worker.commands.tick import option_time

    for name in ("lose_usage", "abort"):
        if not 0 <= getattr(args, name) <= 1:
            raise UsageError(f"--{name.replace('_', '-')} is a share from 0 to 1, such as 0.03")
    if args.lose_usage + args.abort > 1:
        raise UsageError("--lose-usage and --abort together exceed 1: every stream ends one way")
    for name, low, high in (
        ("concurrency", 1, MAX_CONCURRENCY),
        ("tenants", 1, MAX_TENANTS),
        ("cost_in", 0, MAX_NANOS_PER_TOKEN),
        ("cost_out", 0, MAX_NANOS_PER_TOKEN),
        ("estimate_out", 0, 10**9),
        ("progress_every", 0, 10**9),
        ("skew", 0, 10),
    ):
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"--{name.replace('_', '-')} goes from {low} to {high:,}, not {value}")
    return ReplayOptions(
        run_id=args.run_id or f"{args.file.stem}-{args.seed}",
        seed=args.seed,
        tenants=args.tenants,
        skew=args.skew,
        lose_usage=args.lose_usage,
        abort=args.abort,
        cost_in=args.cost_in,
        cost_out=args.cost_out,
        estimate_out=args.estimate_out,
        progress_every=args.progress_every,
        start_at=option_time(args.start_at, "--start-at"),
    )


def _refuse_own_input(trace: Path, journal: Path | None) -> None:
    """Raise UsageError where the journal would overwrite the trace, by whatever name."""
    if journal is None or not trace.exists() or not journal.exists():
        return
    if journal.samefile(trace):
        raise UsageError(
            f"--journal {journal} is the trace itself and would overwrite it: name another file"
        )


def _speed(text: str) -> float | None:
    """Times as fast as the trace; None for max."""
    if text == "max":
        return None
    if text == "realtime":
        return 1.0
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed is realtime, max or a number above 0, not {text!r}")
    return speed


class _ProgressBar:
    """A line on stderr that fills up; nothing where stderr is no terminal."""

    WIDTH = 40

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._shown = -1
        self._live = sys.stderr.isatty()

    def step(self) -> None:
        """One request more is decided."""
        self._done += 1
        percent = 100 * self._done // self._total
        if self._live and percent != self._shown:
            self._shown = percent
            filled = self.WIDTH * self._done // self._total
            bar = "█" * filled + "░" * (self.WIDTH - filled)
            sys.stderr.write(f"\r{bar} {percent:3d} % {self._done:,}/{self._total:,}")
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._live and self._shown >= 0:
            tell("")


class _Journal:
    """A CSV with a line per decided request; nothing without a path."""

    COLUMNS = (
        "request_id",
        "tenant_id",
        "at",
        "fate",
        "allowed",
        "reason",
        "observed_reason",
        "tier",
        "model",
        "estimated_in_tokens",
        "estimated_out_tokens",
        "estimated_cost_nanos",
        "consumed_in_tokens",
        "consumed_out_tokens",
        "consumed_cost_nanos",
    )

    def __init__(self, path: Path | None) -> None:
        import csv

        self._file = None
        if path is not None:
            try:
                self._file = path.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise UsageError(f"can't write {path}: {error.strerror or error}") from error
            self._writer = csv.writer(self._file)
            self._writer.writerow(self.COLUMNS)

    def write(self, line: JournalLine) -> None:
        """Add one request."""
        if self._file is None:
            return
        request, decision = line.request, line.decision
        self._writer.writerow(
            (
                request.ask.request_id,
                request.ask.tenant_id,
                request.at.isoformat(),
                request.fate,
                int(decision.allowed),
                decision.reason,
                decision.observed_reason,
                decision.tier,
                decision.model,
                request.ask.in_tokens,
                request.ask.out_tokens,
                request.ask.cost_nanos,
                request.consumed_in,
                request.consumed_out,
                request.consumed_cost_nanos,
            )
        )

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()
