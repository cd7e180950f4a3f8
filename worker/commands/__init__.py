"""The commands, one file each.

To add a command: a row in COMMANDS, and `worker/commands/<name>.py` with

    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    async def run(args: argparse.Namespace, deps: Deps) -> int: ...

`run` returns the exit code (0 done or nothing to do, 1 a job failed, 2 wrong
usage) or raises a QuotaWorkerError. The answer goes to stdout (`say`), remarks
to stderr (`tell`), log lines to `deps.log`. The file is imported only when its
command is called: import what is heavy (asyncpg, httpx, jinja2, ...) inside
`run`, and keep logic in the rooms below.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final[dict[str, str]] = {
    "migrate": "bring a database to this version, additively",
    "settings": "show or set billing zone, currency and locale",
    "limits": "tenants, departments, budgets: show, apply a file, block, unblock, history",
    "topup": "an extra allowance for a department, with its end, approver and reason",
    "replay": "run a traffic trace through the ledger",
    "demo": "show the product in one minute",
    "tick": "one pass over the due jobs: what cron runs every 5 minutes",
    "run": "one job by name, now",
    "schedule": "the same jobs as a long-running process, and crossings told at once",
    "channel": "the configured channels: list them, or send a test on one",
    "status": "who is hot: one row per tenant and department, worst first",
    "metrics": "the state as Prometheus metrics, for a textfile collector",
    "alerts": "what was told, when and to whom; what waits, and what was given up",
    "doctor": "what is off in this installation, and the cure of each; --probe tests the channels",
    "estimates": "how far estimates lie from usage, per model, and the factor that mends them",
    "invoice": "a provider's invoice beside the ledger: what differs, and why",
    "price": "what tokens cost: list, update, load, rates, of, unpriced",
    "outcomes": "what departments achieved (orders, gmv, ...): import a file, list, template",
    "source": "the usage sources: list them, ask one, or see what was set aside",
    "audit": "whether the ledger's counters agree with its requests; mends what doesn't",
    "months": "the billing months: open or closed, and what is in them",
    "report": "a month's ROI report: what its tokens cost and bought, by department or of all",
    "install": "write the files of a schedule (hermes, cron, systemd, kubernetes) for this program",
    "preview": "what a message looks like on a channel, from samples",
}
