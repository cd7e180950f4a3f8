"""`quota-worker settings [set KEY VALUE]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.answers import say, tell
from worker.errors import SchemaMissingError

if TYPE_CHECKING:
    import argparse

    from worker.bootstrap import Deps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own options."""
    actions = parser.add_subparsers(dest="action", metavar="set")
    change = actions.add_parser("set", help="change one setting")
    change.add_argument("key", metavar="KEY", help="zone, currency or locale")
    change.add_argument("value", metavar="VALUE", help="for instance Asia/Shanghai, CNY, zh-CN")


async def run(args: argparse.Namespace, deps: Deps) -> int:
    """Show the settings, after the change if one was asked for, and where the database is.

    Raises SchemaMissingError before `migrate`, after telling where the database is.
    """
    from worker.postgres.deployment import Deployment

    deployment = Deployment(await deps.connection(), deps.assets)
    if args.action == "set":
        remark = await deployment.change(args.key, args.value)
        if remark is not None:
            tell(remark)
    try:
        settings = await deployment.show()
    except SchemaMissingError:
        _show(deps.whereabouts())  # which database it is that has no ledger yet
        raise
    _show(settings | deps.whereabouts())
    return 0


def _show(shown: dict[str, str]) -> None:
    width = max(map(len, shown))
    for key, value in shown.items():
        say(f"{key:<{width}}  {value}")
