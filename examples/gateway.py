"""A gateway's way through the ledger, whole and runnable: reserve, stream, settle.

    POSTGRES_DSN=… MODEL_URL=http://localhost:8000/v1 python examples/gateway.py my-tenant "Hello"

Every way out of a stream ends its reservation:

- the stream ends with its usage chunk           -> settle with these figures
- it ends without one (many servers forget it)   -> settle with NULL figures: the estimate stays
- the model or the network fails, the caller hangs up, the task is cancelled
      nothing streamed yet -> release: everything goes back
      something streamed   -> release with what was consumed
- the ledger can't be reached at the end         -> the usage inbox, or, if that fails too,
      nothing: the reservation runs out and reconcile charges it by the tenant's policy

A busy row (SQLSTATE 55P03) is tried again with a growing wait; the request id makes every
repetition safe. Needs asyncpg and httpx.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

NANOS_PER_INPUT_TOKEN = 3_000  # 3 per million tokens, in the billing currency
NANOS_PER_OUTPUT_TOKEN = 15_000
MAX_OUTPUT_TOKENS = 512  # what each reservation holds, and what the model is told
PROGRESS_EVERY_TOKENS = 50
LOCK_RETRIES = 5
LOCK_WAIT_SECONDS = 0.05
ENDING_SECONDS = 10.0  # how long a cancelled request may take to end its reservation
LOCK_NOT_AVAILABLE = "55P03"


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


class Gateway:
    """Streams completions for tenants, with each token accounted for.

    `pool` must be made with `statement_cache_size=0` when a pgbouncer in transaction mode
    stands between.
    """

    def __init__(self, pool: asyncpg.Pool, model_api: httpx.AsyncClient) -> None:
        self._pool = pool
        self._model_api = model_api

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
        except (asyncpg.PostgresError, OSError):
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
        except (asyncpg.PostgresError, OSError):
            if not usage.final:
                return  # no figures to save: the reservation runs out and is charged
            await self._call(
                "INSERT INTO quota_usage_inbox"
                " (tenant_id, request_id, input_tokens, output_tokens, cost_nanos, occurred_at)"
                " VALUES ($1, $2, $3, $4, $5, clock_timestamp())",
                tenant,
                request_id,
                *figures,
            )

    async def _give_up(self, tenant: str, request_id: str, usage: Usage) -> None:
        if usage.final:  # the caller left after the usage had come: it is known exactly
            await self._settle(tenant, request_id, usage)
            return
        consumed = usage if usage.out_tokens else Usage(0)
        await self._call(
            "SELECT outcome FROM quota_release($1, $2, $3, $4, $5)",
            tenant,
            request_id,
            consumed.in_tokens,
            consumed.out_tokens,
            consumed.cost_nanos,
        )

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
        """One statement, its own transaction; a busy row is tried again."""
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


async def main() -> None:
    """Streams one answer to the terminal."""
    tenant, prompt = sys.argv[1:3]
    key = os.environ.get("MODEL_KEY")
    async with (
        asyncpg.create_pool(os.environ["POSTGRES_DSN"], statement_cache_size=0) as pool,
        httpx.AsyncClient(
            base_url=os.environ["MODEL_URL"].rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(10, read=120),
        ) as model_api,
    ):
        async for piece in Gateway(pool, model_api).stream(
            tenant, prompt, os.environ.get("MODEL_NAME", "large")
        ):
            sys.stdout.write(piece)
            sys.stdout.flush()
    sys.stdout.write("\n")


if __name__ == "__main__":
    asyncio.run(main())
