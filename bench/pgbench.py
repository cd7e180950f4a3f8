"""Runs pgbench and reads what it says."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import HERE
from bench.options import BATCH_SIZE, CLIENTS, THREADS

GRACE_SECONDS = 120
WARM_UP_SECONDS = 1.0
_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
_DONE = re.compile(r"actually processed: (\d+)")
_FAILED = re.compile(r"failed transactions: (\d+)")
_LATENCY = re.compile(r"latency average = ([\d.]+) ms")
_PROGRESS = re.compile(r"^progress: ([\d.]+) s, ([\d.]+) tps", re.MULTILINE)
_MODEL_AND_LABELS = '"model": "large", "app": "chat", "api_key": "key-7", "end_user": "user-7"'


class PgbenchError(Exception):
    """A run that did not end well: its figures would mean nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """One script with its tenants: `first` to `last`, drawn evenly.

    `each` is the number of decisions in one transaction.
    """

    name: str
    script: str
    first: int
    last: int
    clients: int = CLIENTS
    mode: str = "prepared"
    each: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """What one run did.

    `rate` is decisions per second; `progress` the transactions of each second, where asked for;
    `latencies_ms` of each transaction of a run at a given pace, from when it was due.
    """

    rate: float
    transactions: int
    latency_ms: float
    progress: tuple[float, ...] = ()
    latencies_ms: tuple[float, ...] = ()


def run_load(
    pgbench: str,
    dsn: str,
    load: Load,
    *,
    seconds: int = 0,
    transactions: int = 0,
    progress: bool = False,
    pace: int = 0,
) -> Run:
    """Run for `seconds`, or for `transactions` in all; at `pace` a second where it is given.

    Raises PgbenchError.
    """
    with tempfile.TemporaryDirectory(prefix="qw-bench-script-") as folder:
        script = Path(folder) / "script.sql"
        script.write_text(load.script, encoding="utf-8")
        length = ["-T", str(seconds)] if seconds else ["-t", str(transactions // load.clients)]
        try:
            done = subprocess.run(
                [
                    pgbench,
                    *("-n", "-M", load.mode, "-c", str(load.clients), "-j", str(THREADS)),
                    *("-D", f"first={load.first}", "-D", f"last={load.last}"),
                    *length,
                    *(("-P", "1") if progress else ()),
                    *(("-R", str(pace), "-l", "--log-prefix", f"{folder}/log") if pace else ()),
                    *("-f", str(script), dsn),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=(seconds or 600) + GRACE_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise PgbenchError(f"{load.name}: pgbench did not end") from error
        latencies = _latencies(Path(folder))
    tps, count, latency = (p.search(done.stdout) for p in (_TPS, _DONE, _LATENCY))
    failed = _FAILED.search(done.stdout)
    if done.returncode != 0 or not (tps and count and latency) or (failed and int(failed[1])):
        lines = (done.stderr or done.stdout).strip().splitlines()
        telling = [line for line in lines if "ERROR" in line or "error" in line] or lines
        raise PgbenchError(f"{load.name}: {telling[-1] if telling else 'pgbench failed'}")
    return Run(
        rate=float(tps[1]) * load.each,
        transactions=int(count[1]),
        latency_ms=float(latency[1]),
        progress=tuple(float(rate) for _, rate in _PROGRESS.findall(done.stderr)),
        latencies_ms=latencies,
    )


def _latencies(folder: Path) -> tuple[float, ...]:
    """Of all transactions logged there but those of the first second, which plan their statements.

    A line: client, number, microseconds (with a pace: since it was due), script, second of the
    end, microseconds of that second, lag.
    """
    lines = [
        line.split() for log in folder.glob("log.*") for line in log.read_text("ascii").splitlines()
    ]
    ends = [int(line[4]) + int(line[5]) / 1e6 for line in lines]
    begin = min(ends, default=0.0) + WARM_UP_SECONDS
    return tuple(int(line[2]) / 1000 for line, end in zip(lines, ends, strict=True) if end >= begin)


def script_file(name: str) -> str:
    """A script of bench/scripts."""
    return (HERE / "scripts" / f"{name}.sql").read_text(encoding="utf-8")


def batch_script() -> str:
    """A call of quota_reserve_batch whose JSON pgbench itself fills in.

    The client builds the text, as a gateway does, and in C, so that next to no time of the two
    cores goes there. Variables inside a quoted text are only filled in in mode `simple`; the
    server then parses and plans the statement at each call, which is charged to the batch.
    """
    ordinals = range(1, BATCH_SIZE + 1)
    draws = [f"\\set t{n} random(:first, :last)" for n in ordinals]
    elements = [
        f'{{"tenant": "tenant-:t{n}", "request_id": "r-:r-{n}", "in_tokens": 500, '
        f'"out_tokens": 200, "cost_nanos": 1500000, {_MODEL_AND_LABELS}}}'
        for n in ordinals
    ]
    return "\n".join(
        [
            "\\set r random(1, 9000000000000000000)",
            *draws,
            f"SELECT * FROM quota_reserve_batch('[{', '.join(elements)}]');\n",
        ]
    )
