"""Each channel with its real other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.servers import FeishuServer, ImBot
from contract.servers_mail import Certificates
from contract.sides import HTTP_SIDES, SECRET, SIDES, HttpSide, Side
from contract.sides_mail import MORE_SIDES
from worker.assets import Assets
from worker.rendering import Renderer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["SECRET", "Side"]


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer(Assets())


@pytest.fixture
async def feishu() -> AsyncIterator[FeishuServer]:
    server = FeishuServer(secret=SECRET)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def imbot(tmp_path: Path) -> ImBot:
    return ImBot(tmp_path)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[*SIDES, *MORE_SIDES])
async def side(
    request: pytest.FixtureRequest, renderer: Renderer, tmp_path: Path
) -> AsyncIterator[Side]:
    """Every channel in turn."""
    one = {**SIDES, **MORE_SIDES}[request.param](renderer, tmp_path)
    await one.start()
    yield one
    await one.stop()


@pytest.fixture(params=list(HTTP_SIDES))
async def http_side(
    request: pytest.FixtureRequest, renderer: Renderer, tmp_path: Path
) -> AsyncIterator[HttpSide]:
    """Every channel over HTTP in turn."""
    one = HTTP_SIDES[request.param](renderer, tmp_path)
    await one.start()
    yield one
    await one.stop()
