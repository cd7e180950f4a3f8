"""`quota-worker migrate [--print]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.answers import say, say_script, tell

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps

COMMAND_TIMEOUT_SECONDS = 1800.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    parser.add_argument(
        "--print",
        action="store_true",
        help="write the SQL to stdout instead, for those who apply it themselves with psql",
    )


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Apply, or print; warnings and an administrator's part go to stderr."""
    from worker.postgres.migrate import Migrator, print_script

    if args.print:
        say_script(print_script(deps.assets).rstrip())
        return 0
    deps.tell_embedded()
    connection = await deps.connection(COMMAND_TIMEOUT_SECONDS)
    result = await Migrator(connection, deps.assets).migrate()
    for warning in result.warnings:
        tell(f"warning: {warning}")
    if result.roles_sql is not None:
        tell("The database is ready, but its roles are not: an administrator must run this SQL.")
        tell(result.roles_sql)
    done = ", ".join(result.applied) or "nothing new, functions and views renewed"
    say(f"schema {result.schema}: {done}")
    return 0
