"""A gateway's way through the ledger, whole and runnable: reserve, stream, settle.

    POSTGRES_DSN=… MODEL_URL=http://localhost:8000/v1 MODEL_NAME=large \
        .venv/bin/python examples/gateway.py my-tenant "Hello"
    POSTGRES_DSN=… .venv/bin/python examples/gateway.py --flush

Every way out of a stream ends its reservation:

- the stream ends with its usage chunk           -> settle with these figures
- it ends without one (many servers forget it)   -> settle with NULL figures: the estimate stays
- the model or the network fails, the caller hangs up, the task is cancelled
      nothing streamed yet -> release: everything goes back
      something streamed   -> release with what was consumed
- the tenant is locked for too long at the end   -> the usage inbox, which takes no tenant's lock
- the database can't be reached at the end        -> a line in a local file, the spool; `flush`
      puts its lines into the inbox later. The inbox is a table: it is away with its database
- not even the file can be written                -> nothing: the reservation runs out, and
      reconcile charges it by the tenant's policy

A busy row (SQLSTATE 55P03) is tried again with a growing wait; the request id makes every
repetition safe. Needs asyncpg and httpx. MODEL_KEY is sent as the bearer token where set,
GATEWAY_SPOOL names the spool.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

NANOS_PER_INPUT_TOKEN = 3_000  # 3 per million tokens, in the billing currency
NANOS_PER_OUTPUT_TOKEN = 15_000
MAX_OUTPUT_TOKENS = 512  # what each reservation holds, and what the model is told
PROGRESS_EVERY_TOKENS = 50
LOCK_RETRIES = 5
LOCK_WAIT_SECONDS = 0.05
LEDGER_SECONDS = 12.0  # for one statement with its repetitions: five lock waits of 2 s
INBOX_SECONDS = 4.0
ENDING_SECONDS = 20.0  # how long a cancelled request may take to end its reservation
LOCK_NOT_AVAILABLE = "55P03"
# The ledger refuses, is away, or doesn't answer (TimeoutError is an OSError).
LEDGER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
DEFAULT_SPOOL = "gateway-spool.jsonl"
INTO_INBOX = (
    "INSERT INTO quota_usage_inbox"
    " (tenant_id, request_id, input_tokens, output_tokens, cost_nanos, occurred_at)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
)


class QuotaRefusedError(Exception):
    """The ledger said no; answer 429 with `retry_after_seconds`."""

    def __init__(self, reason: str, notice: str | None, retry_after_seconds: float | None) -> None:
        super().__init__(notice or reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


@dataclass
class Usage:
    """What a stream has used so far; `final` once the model itself said so."""

    in_tokens: int
    out_tokens: int = 0
    final: bool = False

    @property
    def cost_nanos(self) -> int:
        """At the two prices above."""
        return self.in_tokens * NANOS_PER_INPUT_TOKEN + self.out_tokens * NANOS_PER_OUTPUT_TOKEN


@dataclass(frozen=True)
class Ended:
    """A call's known usage that the ledger hasn't got yet: a row of the inbox."""

    tenant_id: str
    request_id: str
    input_tokens: int
    output_tokens: int
    cost_nanos: int
    occurred_at: str  # ISO 8601 with its offset

    @property
    def row(self) -> tuple[object, ...]:
        """For INTO_INBOX."""
        occurred_at = datetime.fromisoformat(self.occurred_at)
        figures = (self.input_tokens, self.output_tokens, self.cost_nanos)
        return (self.tenant_id, self.request_id, *figures, occurred_at)


class Spool:
    """Usage on this machine's disk while the database is away: a file of JSON lines.

    Several processes may share it: each takes the file's lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, ended: Ended) -> None:
        """One line, on the disk when this returns. Raises OSError."""
        with self._locked() as file:
            # a line that a crash cut short must not swallow this one
            torn = os.fstat(file).st_size > 0 and os.pread(file, 1, _size(file) - 1) != b"\n"
            line = json.dumps(vars(ended), ensure_ascii=False).encode() + b"\n"
            os.write(file, b"\n" + line if torn else line)
            os.fsync(file)

    async def flush(self, connection: asyncpg.Connection) -> int:
        """Put every line into the inbox, then empty the file; returns how many.

        All or nothing. A crash between the two leaves the lines for the next time: the
        inbox books the same usage twice without charging it twice.
        """
        if not os.path.exists(self._path):  # noqa: PTH110, ASYNC240  a stat: no wait
            return 0
        with self._locked() as file:
            lines = os.pread(file, _size(file), 0).splitlines()
            rows = [ended.row for line in lines if (ended := _parsed(line)) is not None]
            await connection.executemany(INTO_INBOX, rows, timeout=LEDGER_SECONDS)
            os.ftruncate(file, 0)
            os.fsync(file)
        return len(rows)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until closed; nobody keeps it over LEDGER_SECONDS
            yield file
        finally:
            os.close(file)


def _size(file: int) -> int:
    return os.fstat(file).st_size


def _parsed(line: bytes) -> Ended | None:
    """The line's usage; None for an empty one, and for one that a crash cut short."""
    try:
        return Ended(**json.loads(line)) if line else None
    except (ValueError, TypeError):
        print(f"left out of the spool, cut short: {line!r}", file=sys.stderr)  # noqa: T201
        return None


class Gateway:
    """Streams completions for tenants, with each token accounted for.

    `pool` must be made with `statement_cache_size=0` when a pgbouncer in transaction mode
    stands between. `spool` should lie on a disk that outlives the process.
    """

    def __init__(self, pool: asyncpg.Pool, model_api: httpx.AsyncClient, spool: Spool) -> None:
        self._pool = pool
        self._model_api = model_api
        self._spool = spool

    async def stream(
        self, tenant: str, prompt: str, model: str, request_id: str | None = None
    ) -> AsyncIterator[str]:
        """The answer's pieces as they arrive. Raises QuotaRefusedError before the first.

        Close it (`aclosing`) when the caller hangs up: that ends the reservation.
        """
        request_id = request_id or str(uuid.uuid4())
        usage = Usage(in_tokens=estimate_tokens(prompt))
        held = Usage(usage.in_tokens, MAX_OUTPUT_TOKENS)
        row = await self._call(
            "SELECT allowed, reason, notice, model, retry_after_seconds"
            " FROM quota_reserve($1, $2, $3, $4, $5, p_model => $6)",
            tenant,
            request_id,
            held.in_tokens,
            held.out_tokens,
            held.cost_nanos,
            model,
        )
        if not row["allowed"]:
            wait = row["retry_after_seconds"]
            raise QuotaRefusedError(
                row["reason"], row["notice"], None if wait is None else float(wait)
            )
        try:
            # the ledger may have chosen a smaller model: the department's budget runs low
            async for piece in self._pieces(prompt, row["model"] or model, usage):
                yield piece
                if usage.out_tokens and usage.out_tokens % PROGRESS_EVERY_TOKENS == 0:
                    await self._progress(tenant, request_id, usage)
        except BaseException:
            # the model's error, the caller's close (GeneratorExit), or cancellation
            await self._ended(self._give_up(tenant, request_id, usage))
            raise
        await self._ended(self._settle(tenant, request_id, usage))

    async def _pieces(self, prompt: str, model: str, usage: Usage) -> AsyncIterator[str]:
        """The model's stream; `usage` is kept up to date on the way."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": MAX_OUTPUT_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},  # without this no usage ever comes
        }
        async with self._model_api.stream("POST", "chat/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line.removeprefix("data:").strip()
                if data == "[DONE]":
                    return
                chunk: dict[str, Any] = json.loads(data)
                if chunk.get("usage"):
                    usage.in_tokens = chunk["usage"]["prompt_tokens"]
                    usage.out_tokens = chunk["usage"]["completion_tokens"]
                    usage.final = True
                for choice in chunk.get("choices", ()):
                    piece = choice.get("delta", {}).get("content")
                    if piece:
                        usage.out_tokens += 1  # a delta is about a token; the end corrects it
                        yield piece

    async def _progress(self, tenant: str, request_id: str, usage: Usage) -> None:
        """Prolongs the reservation while a long answer streams. A failure here is no harm."""
        try:
            await self._call(
                "SELECT outcome FROM quota_progress($1, $2, $3)",
                tenant,
                request_id,
                usage.out_tokens,
            )
        except LEDGER_ERRORS:
            return

    async def _settle(self, tenant: str, request_id: str, usage: Usage) -> None:
        figures: tuple[int | None, ...] = (usage.in_tokens, usage.out_tokens, usage.cost_nanos)
        if not usage.final:
            figures = (None, None, None)
        try:
            await self._call(
                "SELECT outcome FROM quota_settle($1, $2, $3, $4, $5)",
                tenant,
                request_id,
                *figures,
            )
        except LEDGER_ERRORS:
            if not usage.final:
                raise  # no figures to save: the reservation runs out and is charged
            await self._save(tenant, request_id, usage)

    async def _give_up(self, tenant: str, request_id: str, usage: Usage) -> None:
        if usage.final:  # the caller left after the usage had come: it is known exactly
            await self._settle(tenant, request_id, usage)
            return
        consumed = usage if usage.out_tokens else Usage(0)
        try:
            await self._call(
                "SELECT outcome FROM quota_release($1, $2, $3, $4, $5)",
                tenant,
                request_id,
                consumed.in_tokens,
                consumed.out_tokens,
                consumed.cost_nanos,
            )
        except LEDGER_ERRORS:
            if not usage.out_tokens:
                raise  # nothing to save: the reservation runs out
            await self._save(tenant, request_id, consumed)

    async def _save(self, tenant: str, request_id: str, usage: Usage) -> None:
        """The inbox, which needs no tenant's lock; the spool where that is away too."""
        now = datetime.now(UTC).isoformat()
        figures = (usage.in_tokens, usage.out_tokens, usage.cost_nanos)
        ended = Ended(tenant, request_id, *figures, now)
        try:
            async with asyncio.timeout(INBOX_SECONDS):
                await self._pool.execute(INTO_INBOX, *ended.row)
        except LEDGER_ERRORS:
            await asyncio.to_thread(self._spool.append, ended)

    async def _ended(self, ending: Coroutine[Any, Any, None]) -> None:
        """Sees an ending through even when this task is being cancelled.

        If the ledger stays unreachable the reservation runs out, and reconcile ends it.
        """
        task = asyncio.ensure_future(asyncio.wait_for(ending, ENDING_SECONDS))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():  # bounded by ENDING_SECONDS
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.cancelled() and isinstance(failure := task.exception(), Exception):
            print(f"reservation left to reconcile: {failure}", file=sys.stderr)  # noqa: T201
        if cancelled is not None:
            raise cancelled

    async def _call(self, sql: str, *arguments: object) -> asyncpg.Record:
        """One statement, its own transaction; a busy row is tried again.

        Raises LEDGER_ERRORS, TimeoutError among them for a database that doesn't answer.
        """
        async with asyncio.timeout(LEDGER_SECONDS):
            for attempt in range(LOCK_RETRIES):
                try:
                    return await self._pool.fetchrow(sql, *arguments)
                except asyncpg.PostgresError as error:
                    if error.sqlstate != LOCK_NOT_AVAILABLE or attempt == LOCK_RETRIES - 1:
                        raise
                    # a random share, so that many waiters don't come back together
                    await asyncio.sleep(LOCK_WAIT_SECONDS * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311
        raise AssertionError("unreachable: the last attempt returns or raises")


def estimate_tokens(text: str) -> int:
    """Rough: a token per CJK character, else one per four bytes. Use a tokenizer if you can."""
    wide = sum(ord(character) > 0x2E7F for character in text)  # noqa: PLR2004
    return wide + (len(text) - wide) // 4 + 1


async def main() -> int:
    """Streams one answer to the terminal, after what the spool still holds; exit code."""
    spool = Spool(Path(os.environ.get("GATEWAY_SPOOL", DEFAULT_SPOOL)))
    key = os.environ.get("MODEL_KEY")
    async with asyncpg.create_pool(
        os.environ["POSTGRES_DSN"], min_size=1, statement_cache_size=0
    ) as pool:
        async with pool.acquire() as connection:
            flushed = await spool.flush(connection)
        if sys.argv[1] == "--flush":
            sys.stdout.write(f"{flushed} put into the inbox\n")
            return 0
        tenant, prompt = sys.argv[1:3]
        async with httpx.AsyncClient(
            base_url=os.environ["MODEL_URL"].rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(10, read=120),
        ) as model_api:
            model = os.environ.get("MODEL_NAME", "large")
            try:
                async for piece in Gateway(pool, model_api, spool).stream(tenant, prompt, model):
                    sys.stdout.write(piece)
                    sys.stdout.flush()
            except QuotaRefusedError as refused:
                wait = refused.retry_after_seconds
                again = "" if wait is None else f", try again in {wait:.0f} s"
                notice = f": {refused}" if str(refused) != refused.reason else ""
                sys.stderr.write(f"refused: {refused.reason}{again}{notice}\n")
                return 1
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    try:
        code = asyncio.run(main())
    except (*LEDGER_ERRORS, httpx.HTTPError) as failure:
        code = 1
        sys.stderr.write(f"failed: {type(failure).__name__}: {failure}\n")
    sys.exit(code)
