"""Loads the named queries of `sql/queries/<adapter>.sql`.

A file is a list of `-- name: some_name` lines, each followed by one SQL
statement that runs to the next such line. Comments after the name line belong
to the query. Names are lower_snake_case and unique in the file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from worker.errors import AssetMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.assets import Assets

_NAME_LINE = re.compile(r"^-- name:[ \t]*([a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)


class Queries:
    """The queries of one file, by name: `queries["find_tenant"]`."""

    def __init__(self, adapter: str, statements: dict[str, str]) -> None:
        self.adapter = adapter
        self._statements = statements

    def __getitem__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            raise AssetMissingError(
                f"sql/queries/{self.adapter}.sql has no query {name!r}: install quota-worker again"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)


def load_queries(assets: Assets, adapter: str) -> Queries:
    """Read `sql/queries/<adapter>.sql`; raises AssetMissingError on a broken file."""
    return parse_queries(adapter, assets.read(f"sql/queries/{adapter}.sql"))


def parse_queries(adapter: str, text: str) -> Queries:
    """Split a file's text; a name twice, or one without SQL, raises AssetMissingError."""
    pieces = _NAME_LINE.split(text)
    statements: dict[str, str] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        sql = body.strip()
        if name in statements or not sql:
            fault = "stands twice" if name in statements else "is empty"
            raise AssetMissingError(f"sql/queries/{adapter}.sql: query {name!r} {fault}")
        statements[name] = sql
    return Queries(adapter, statements)
