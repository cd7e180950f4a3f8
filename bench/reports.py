"""A closed month's reports of many departments, built and queued by ticks, as whole processes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cluster import HERE, tell
from bench.pgbench import PgbenchError
from bench.results import Row, ratio_row
from bench.tick import environment_of, program, run_process

if TYPE_CHECKING:
    from bench.measures import Bench

FEW = 20  # departments, of which the memory is taken for what a program needs at all
TICKS_MAX = 20
SECONDS_MAX = 300.0
# August closed too long before to be told
JOB = ["tick", "--jobs", "roi_report", "--as-of", "2026-10-20T00:00:00Z"]
CONFIGURATION = """
[channels.mail]
kind = "email"
host = "localhost"
sender = "quota@example.com"
to = ["ops@example.com"]
[default]
channels = ["mail"]
[report]
channel = "mail"
to = ["cfo@example.com"]
"""


def reports(bench: Bench) -> list[Row]:
    """Once for a few departments, and once for all."""
    departments = bench.options.report_departments
    _, few = _run(bench, FEW)
    milliseconds, many = _run(bench, departments)
    made = departments + 1
    tell(f"  {made:,} reports in {milliseconds / 1000:.1f} s, {many / 1024:.0f} MiB")
    return [
        Row(
            "reports",
            f"seconds to build and queue {made:,} reports",
            milliseconds / 1000,
            target=SECONDS_MAX,
            at_most=True,
            detail=f"{1000 * made / milliseconds:,.0f}/s; {4 * departments:,} tenants, "
            "20 apps and 5 models a department, one mail each",
        ),
        ratio_row(
            "reports",
            f"peak memory of such a tick / of one with {FEW} departments",
            [(many / 1024, few / 1024)],
            at_most=True,
            unit=" MiB",
            detail="what is more is the report of all, which has a line for each tenant",
        ),
    ]


def _run(bench: Bench, departments: int) -> tuple[float, int]:
    """Milliseconds of all ticks together, and the peak kibibytes of one."""
    database = bench.cluster.empty()
    tell(f"loading a month of {departments:,} departments")
    bench.cluster.execute(database, (HERE / "reports.sql").read_text(encoding="utf-8"))
    bench.cluster.rows(database, "load_for_reports", departments)
    bench.cluster.execute(database, "VACUUM (ANALYZE)")
    taken, peak = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "quota-worker.toml"
        file.write_text(CONFIGURATION, encoding="utf-8")
        environment = environment_of(bench, database) | {"QUOTA_WORKER_CONFIG": str(file)}
        for _ in range(TICKS_MAX):
            milliseconds, kibibytes = run_process([*program(), *JOB], environment)
            taken, peak = taken + milliseconds, max(peak, kibibytes)
            made = tuple(bench.cluster.rows(database, "reports_made")[0])
            if made == (departments + 1, departments + 1):
                break
        else:
            raise PgbenchError(f"reports: {made} reports and mails of {departments + 1}")
    bench.cluster.drop(database)
    return taken, peak
