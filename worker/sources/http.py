"""A usage source that is an HTTP lookup: one GET for each request, bounded on every side.

At most so many a second over all workers, so many at once, so many bytes of answer, and so
long. No redirect is followed, to no host; no address and no header shows in what is told.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from worker.errors import LockTimeoutError, SerializationError
from worker.json_paths import NotThereError, shown_path, value_at
from worker.notifiers.connection import BROKEN_OFF, why_not_connected
from worker.resolving import CURE as SLOW_DNS
from worker.resolving import watched_lookups
from worker.sources.base import LEAST_SECONDS, BaseSource, Gathered, SourceFailedError
from worker.sources.reading import UnusableAnswerError, name_of
from worker.usage import FaultReason, SourceCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    import httpx

    from worker.resolving import LookupWatch
    from worker.settings import SourceSettings
    from worker.sources.reading import Reader
    from worker.usage import OverdueRequest, SourceAnswer, ToldUsage

    # The seconds to wait before a request may go out, None: longer than so many.
    Slot = Callable[[str, int, float], Awaitable[float | None]]

# One asking takes about so long, so that the sources after this one have their turn.
ASKING_SECONDS: Final = 4
# After so many failures in one run a source isn't asked again in it.
FAILURES_MAX: Final = 3
TIMEOUTS_MAX: Final = 2
OK, ACCEPTED, NO_CONTENT = 200, 202, 204
REDIRECTS: Final = range(300, 400)
LOGIN: Final = frozenset({401, 403, 407})
TOO_MANY: Final = 429
SERVER_ERRORS: Final = 500
DOTS: Final = frozenset({".", ".."})


class HttpSource(BaseSource):
    """Port ``UsageSource`` on an HTTP endpoint of the operator's."""

    def __init__(self, settings: SourceSettings, reader: Reader, slot: Slot | None) -> None:
        """``slot`` keeps the rate over all workers; None: for a single request by hand."""
        super().__init__(settings, reader)
        self.batch_size = max(
            settings.values["at_once"], ASKING_SECONDS * settings.values["requests_per_second"]
        )
        self._slot = slot
        self._client: httpx.AsyncClient | None = None
        self._failures = 0
        self._timeouts = 0

    async def ask(
        self, requests: Sequence[OverdueRequest], seconds_left: Callable[[], float]
    ) -> SourceAnswer:
        """A GET for each, several at once; raises where the ledger's database is lost."""
        gathered = Gathered()
        waiting = iter(requests)
        try:
            async with asyncio.TaskGroup() as group:
                workers: list[asyncio.Task[None]] = []
                for _ in range(min(self.settings.values["at_once"], len(requests))):
                    work = self._work(waiting, seconds_left, gathered, workers)
                    workers.append(group.create_task(work))
        except BaseExceptionGroup as errors:
            # the first says it all: what the others were about to tell is asked for again
            raise errors.exceptions[0] from None
        return gathered.answer()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _work(
        self,
        waiting: Iterator[OverdueRequest],
        seconds_left: Callable[[], float],
        gathered: Gathered,
        workers: list[asyncio.Task[None]],
    ) -> None:
        """One request after the other, until none waits, time is over or the source is down.

        It is down for the others, too: what they wait for is asked for again at the next tick.
        """
        while not gathered.is_down:  # bounded by `waiting`
            request = next(waiting, None)
            if request is None:
                return
            wait = await self._granted(seconds_left() - LEAST_SECONDS)
            if wait is None:
                return
            await asyncio.sleep(wait)
            seconds = min(float(self.settings.values["time_limit_seconds"]), seconds_left())
            if seconds < LEAST_SECONDS or gathered.is_down:
                return
            await self._one(request, seconds, gathered)
        for other in workers:
            if other is not asyncio.current_task():
                other.cancel()

    async def _granted(self, most_seconds: float) -> float | None:
        if most_seconds <= 0 or self._slot is None:
            return None if most_seconds <= 0 else 0.0
        rate = self.settings.values["requests_per_second"]
        try:
            return await self._slot(self.name, rate, most_seconds)
        except (LockTimeoutError, SerializationError):
            return None  # what was told so far is not lost for it

    async def _one(self, request: OverdueRequest, seconds: float, gathered: Gathered) -> None:
        try:
            with watched_lookups() as lookups:
                async with asyncio.timeout(seconds):
                    document = await self._document(request, gathered)
            usage = None if document is None else self._usage(request, document, gathered)
        except TimeoutError:
            if seconds < self.settings.values["time_limit_seconds"]:
                return  # this run's time was over, not the source's
            self._failed(self._too_slow(seconds, lookups), gathered)
        except SourceFailedError as error:
            if error.trouble.cause in {SourceCause.UNKNOWN_ANSWER, SourceCause.TOO_LARGE}:
                error.trouble = error.trouble._replace(answered=True)
                words = error.trouble.detail
                gathered.set_aside(self.reader.fault(request, FaultReason.UNREADABLE, words))
            self._failed(error, gathered)
        except UnusableAnswerError as error:
            self._failures = 0
            gathered.set_aside(self.reader.fault(request, error.reason, str(error)))
        else:
            self._failures = 0
            if usage is not None:
                gathered.usages.append(usage)
        gathered.asked.append(request)

    def _too_slow(self, seconds: float, lookups: LookupWatch) -> SourceFailedError:
        if lookups.is_unresolved:
            words = lookups.words(seconds)
            return SourceFailedError(SourceCause.UNREACHABLE, words, SLOW_DNS, is_down=True)
        self._timeouts += 1
        return SourceFailedError(
            SourceCause.TIMEOUT,
            f"no answer within {seconds:g} s",
            "look at the service; raise time_limit_seconds if it is slow by nature",
            is_down=self._timeouts >= TIMEOUTS_MAX,
        )

    def _failed(self, error: SourceFailedError, gathered: Gathered) -> None:
        self._failures += 1
        error.is_down = error.is_down or self._failures >= FAILURES_MAX
        gathered.failed(error)

    async def _document(self, request: OverdueRequest, gathered: Gathered) -> object:
        """What was answered; None: it knows no usage of it. Raises SourceFailedError."""
        import httpx

        try:
            async with self._opened().stream("GET", self._address(request)) as response:
                self._judge(response.status_code)
                if response.status_code != OK:
                    with suppress(SourceFailedError):  # read, so that the connection serves again
                        await self._body(response)
                    if response.status_code not in self.settings.values["not_found"]:
                        gathered.not_yet.append(request)
                    return None
                return self._parsed(await self._body(response), response.headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            why = why_not_connected(error)
            cure = why.cure or "check the address, DNS, firewall and proxy, and that it runs"
            raise SourceFailedError(
                SourceCause.UNREACHABLE, why.words, cure, is_down=True
            ) from None
        except (
            httpx.InvalidURL,
            httpx.UnsupportedProtocol,
            httpx.LocalProtocolError,
            UnicodeError,
        ):
            raise SourceFailedError(
                SourceCause.REJECTED, "no request can be made for this address", "copy `url` again"
            ) from None
        except (httpx.HTTPError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise  # of the whole request
            raise SourceFailedError(
                SourceCause.UNREACHABLE, BROKEN_OFF, "look in the service's log"
            ) from None

    def _address(self, request: OverdueRequest) -> str:
        if DOTS & {request.tenant_id, request.request_id}:
            # a path would swallow it
            raise UnusableAnswerError(
                FaultReason.WRONG_ID, "an id of dots alone can't be put into an address"
            )
        url: str = self.settings.values["url"]
        # ids first made harmless: what they hold is never read as a place of the other's
        holes = {"{tenant_id}": request.tenant_id, "{request_id}": request.request_id}
        for hole, value in holes.items():
            url = url.replace(hole, quote(value, safe=""))
        return url

    def _judge(self, status: int) -> None:
        """Return for an answer, and for one that says there is none."""
        known = status in {OK, ACCEPTED, NO_CONTENT}
        if known or status in self.settings.values["not_found"]:
            return
        if status in REDIRECTS:
            raise SourceFailedError(
                SourceCause.REJECTED,
                f"HTTP {status}: the address redirects, which is not followed",
                "give the final address as `url`",
                is_down=True,
            )
        if status in LOGIN:
            raise SourceFailedError(
                SourceCause.LOGIN_REFUSED,
                f"HTTP {status}",
                "copy the secret of `headers` again, and see what it may read",
                is_down=True,
            )
        if status == TOO_MANY:
            raise SourceFailedError(
                SourceCause.RATE_LIMITED, "HTTP 429", "lower requests_per_second", is_down=True
            )
        if status >= SERVER_ERRORS:
            raise SourceFailedError(
                SourceCause.SERVER_ERROR, f"HTTP {status}", "look in the service's log"
            )
        raise SourceFailedError(
            SourceCause.REJECTED,
            f"HTTP {status}",
            "check `url`; a status that means 'no such request' belongs into not_found",
        )

    async def _body(self, response: httpx.Response) -> bytes:
        most = self.settings.values["answer_max_bytes"]
        kept = bytearray()
        # as it came: who packs an answer that was asked for plain may mean a bomb
        async for chunk in response.aiter_raw():
            kept += chunk[: most + 1 - len(kept)]
            if len(kept) > most:
                raise SourceFailedError(
                    SourceCause.TOO_LARGE,
                    f"the answer is larger than {most:,} bytes",
                    "have it answer for one request, or raise answer_max_bytes",
                )
        return bytes(kept)

    def _parsed(self, body: bytes, headers: Mapping[str, str]) -> object:
        try:
            document: object = json.loads(body, parse_float=Decimal, parse_constant=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            kind = headers.get("content-type", "").partition(";")[0].strip()[:60] or "of no type"
            begun = body[:60].decode("utf-8", "replace")
            # a wrong type is told, and one that says JSON of what is none
            sent = (
                f"JSON by its type, {kind}, but not readable as such"
                if "json" in kind.lower()
                else f"no JSON but {kind}"
            )
            raise SourceFailedError(
                SourceCause.UNKNOWN_ANSWER,
                self.reader.excerpt(f"{sent}; it begins with {begun!r}"),
                "check that `url` leads to the service itself, and to no login page or proxy",
            ) from None
        return document

    def _usage(
        self, request: OverdueRequest, document: object, gathered: Gathered
    ) -> ToldUsage | None:
        told: dict[str, object] = {}
        for word, path in self.settings.words.items():
            try:
                told[word] = value_at(document, path)
            except NotThereError as error:
                if word in {"in_tokens", "out_tokens", "tenant_id", "request_id"}:
                    raise UnusableAnswerError(
                        FaultReason.MISSING_FIGURE, f"{word}: {error}"
                    ) from None
        for word, mine, reason in (
            ("tenant_id", request.tenant_id, FaultReason.OTHER_TENANT),
            ("request_id", request.request_id, FaultReason.NOT_ASKED),
        ):
            if word in self.settings.words and name_of(told.get(word)) != mine:
                path = shown_path(self.settings.words[word])
                other = str(told.get(word))[:60]
                raise UnusableAnswerError(
                    reason, f"the answer is about another one: {path} is {other!r}"
                )
        reading = self.reader.read(request, told)
        if reading is None:
            gathered.not_yet.append(request)
            return None
        if reading.cost_fault is not None:
            gathered.set_aside(reading.cost_fault)
        return reading.usage

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            # They log the address of each request, and it may hold a secret.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            from worker.configuration.addresses import is_loopback

            values = self.settings.values
            sent = {"Accept": "application/json", "User-Agent": "quota-worker"}
            try:
                self._client = httpx.AsyncClient(
                    headers=sent | values["headers"] | {"Accept-Encoding": "identity"},
                    timeout=None,  # noqa: S113  each request has its own limit, from outside
                    follow_redirects=False,
                    trust_env=not is_loopback(urlsplit(values["url"]).hostname or ""),
                    verify=_authorities(values["url"]),
                    limits=httpx.Limits(max_connections=values["at_once"]),
                )
            except (ImportError, ValueError, httpx.InvalidURL):
                raise SourceFailedError(
                    SourceCause.UNREACHABLE,
                    "the proxy of HTTPS_PROXY or ALL_PROXY can't be used",
                    "set it to an http:// or https:// address, or unset it",
                    is_down=True,
                ) from None
        return self._client


def _authorities(url: str) -> bool | ssl.SSLContext:
    """Those of the system; none at all for plain http, as loading them takes a while."""
    if url.startswith("https:"):
        return True
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
