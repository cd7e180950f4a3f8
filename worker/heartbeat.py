"""Tells a watcher outside that a tick was good, so that silence is noticed.

One GET on an address that holds its token in its path: it shows in no log and no error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from worker.errors import ConfigurationError
from worker.settings import HEARTBEAT_VARIABLE as VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from worker.jobs.tick import TickReport
    from worker.telemetry import Log

PING_SECONDS: Final = 5.0
GOOD: Final = range(200, 300)


def heartbeat_url(environ: Mapping[str, str]) -> str | None:
    """The address to tell; None: nobody is told. Raises ConfigurationError, without it."""
    url = environ.get(VARIABLE, "").strip()
    if not url:
        return None
    from worker.configuration.addresses import url_fault

    fault = url_fault(url)
    if fault is not None:
        raise ConfigurationError(f"{VARIABLE} {fault}")
    return url


async def tell_heartbeat(url: str | None, report: TickReport, log: Log) -> None:
    """Tell that the tick was good: it had the lease, and no job failed. Never raises.

    Takes at most PING_SECONDS; a ping that fails is a line in the log, and the next tick's ping
    makes up for it.
    """
    if url is None or not report.granted or report.failed:
        return
    why = await _ping(url)
    if why is not None:
        log.warning("heartbeat not told", reason=why, variable=VARIABLE)


async def _ping(url: str) -> str | None:
    """Why the watcher may not know; None: it does."""
    try:
        # made before the time counts: loading the library is no silence of the watcher
        async with _client(url) as client:
            # the limit holds for a proxy, a name that isn't found, and a slow answer, too
            async with asyncio.timeout(PING_SECONDS):
                # a redirect would hand the token on
                request = client.stream("GET", url, headers={"User-Agent": "quota-worker"})
                async with request as answer:
                    status = answer.status_code
    except TimeoutError:
        return f"no answer within {PING_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001  whatever a library raises: no tick fails for it
        return f"no answer ({type(error).__name__})"
    return None if status in GOOD else f"HTTP {status}"


def _client(url: str) -> httpx.AsyncClient:
    from urllib.parse import urlsplit

    import httpx

    from worker.configuration.addresses import is_loopback

    # they log the address of each request
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # a proxy is for the world outside
    trust_env = not is_loopback(urlsplit(url).hostname or "")
    # the limit for the whole call is ours
    return httpx.AsyncClient(timeout=None, follow_redirects=False, trust_env=trust_env)  # noqa: S113
