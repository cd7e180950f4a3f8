"""Fixtures of the ledger's tests: calls on one connection to a fresh database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sql.calls import Calls

if TYPE_CHECKING:
    import asyncpg


@pytest.fixture
def calls(conn: asyncpg.Connection[Any]) -> Calls:
    """Calls with p_now at noon of 2026-05-15 (UTC)."""
    return Calls(conn)
