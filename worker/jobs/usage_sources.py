"""Asks the usage sources for overdue reservations, before their stale policy is applied.

In bounded batches, those first that were never asked for, the newest of them first; then
those of earlier ticks, the longest ago first. Each batch goes to the sources in the order
of the configuration, to each what those before it didn't know. What a source tells is
settled at once; what can't be used is set aside by name. A source that is down costs its
time limit and is left alone for the rest of the run; what it wasn't asked, or didn't know,
is asked again at the next tick. No transaction is open while a source is asked.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from worker.errors import (
    DatabaseError,
    InvalidInputError,
    LockTimeoutError,
    QuotaWorkerError,
    SerializationError,
)
from worker.untrusted import visible
from worker.usage import (
    FaultReason,
    SourceAnswer,
    SourceCause,
    SourceFailure,
    SourceFault,
    SourceTrouble,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.jobs.context import Asking, JobContext
    from worker.ports.ledger import UsageSource
    from worker.usage import OverdueRequest, ToldUsage

# A tick's other work needs this much of its time.
MARGIN_SECONDS: Final = 30.0
# A bound, not a target: time comes first.
MAX_BATCHES: Final = 10_000
EXCERPT_LETTERS: Final = 300
SETTLE_ATTEMPTS: Final = 3
# So many usages that the database refuses are set aside by name in one run; with more of them
# the fault isn't theirs.
REFUSED_MAX: Final = 10
RETRY_WAIT_SECONDS: Final = 0.2
# Outcomes of ``settle`` beyond the contract's, and those by which nothing was settled.
LOCKED, KEPT, OVERTAKEN = "locked", "kept", "overtaken"
REFUSED: Final = frozenset({"conflict", FaultReason.INVALID.value})


class AskedTally:
    """What one run of asking came to."""

    def __init__(self) -> None:
        self.asked = 0
        self.settled = 0
        self.set_aside = 0
        self.failed = 0
        self.lock_timeouts = 0
        self._times: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], SourceTrouble] = {}

    def add(self, source: str, answer: SourceAnswer) -> None:
        """Count what a source answered, and what went wrong with it."""
        self.asked += len(answer.asked)
        self.set_aside += answer.set_aside
        self.failed += sum(not trouble.answered for trouble in answer.troubles)
        for trouble in answer.troubles:
            self._times[source, trouble.cause] += 1
            self._last[source, trouble.cause] = trouble

    def failures(self) -> tuple[SourceFailure, ...]:
        """Each source and cause that failed, with the last one's words."""
        return tuple(
            SourceFailure(source, cause, times, last.detail, last.cure)
            for (source, cause), times in sorted(self._times.items())
            for last in [self._last[source, cause]]
        )


async def ask_sources(ctx: JobContext, tally: AskedTally) -> None:
    """Ask until nothing is left, the time is up or no source answers; closes the sources.

    ``tally`` is right whatever happens. Raises what the ledger's database raises: the caller
    goes on with the rest of its work, and what wasn't asked waits for the next tick.
    """
    asking = ctx.ports.asking
    if asking is None:
        return
    run = _Run(ctx, asking, tally)
    try:
        await run.all()
    finally:
        for source in asking.sources:
            await source.close()


class _Run:
    """One run's time, and the sources that are still worth asking."""

    def __init__(self, ctx: JobContext, asking: Asking, tally: AskedTally) -> None:
        self._ctx = ctx
        self._ledger = asking.ledger
        self._tally = tally
        self._ends_at = ctx.monotonic() + asking.ask_seconds
        self._live: list[UsageSource] = list(asking.sources)
        self._refused = 0

    def seconds_left(self) -> float:
        """Of the asking, 0.0 when somebody asked to stop."""
        left = self._ctx.deadline.remaining_seconds() - MARGIN_SECONDS
        return max(0.0, min(self._ends_at - self._ctx.monotonic(), left))

    async def all(self) -> None:
        """Those never asked for, then those of earlier ticks."""
        since = await self._ledger.begin(self._ctx.now)
        for again in (False, True):
            before = None
            for _ in range(MAX_BATCHES):
                if not self._live or self.seconds_left() == 0.0:
                    return
                size = min(source.batch_size for source in self._live)
                batch = await self._ledger.due(since, before, size, self._ctx.now, again=again)
                if not batch:
                    break
                if not await self._ask_batch(batch):
                    return
                before = batch[-1].expires_at

    async def _ask_batch(self, batch: Sequence[OverdueRequest]) -> bool:
        """Ask one source after the other; False when none was asked anything."""
        waiting = {(one.tenant_id, one.request_id): one for one in batch}
        asked: dict[tuple[str, str], OverdueRequest] = {}
        try:
            await self._ask_each(waiting, asked)
        except QuotaWorkerError:
            # the next tick asks for others first
            with suppress(QuotaWorkerError):
                await self._note_asked(asked)
            raise
        await self._note_asked(asked)
        return bool(asked) or len(waiting) < len(batch)

    async def _note_asked(self, asked: Mapping[tuple[str, str], OverdueRequest]) -> None:
        if asked:
            await self._ledger.note_asked(list(asked.values()), self._ctx.now)

    async def _ask_each(
        self,
        waiting: dict[tuple[str, str], OverdueRequest],
        asked: dict[tuple[str, str], OverdueRequest],
    ) -> None:
        """Each source in turn; takes from ``waiting`` what ends, adds to ``asked`` what doesn't."""
        for source in tuple(self._live):
            if not waiting or self.seconds_left() == 0.0:
                break
            answer = await self._answer(source, list(waiting.values()))
            self._tally.add(source.name, answer)
            if answer.is_down:
                self._live.remove(source)
            asked |= {(one.tenant_id, one.request_id): one for one in answer.asked}
            # faults first: a settlement that fails must not lose them
            if answer.faults:
                await self._ledger.set_aside(source.name, answer.faults, self._ctx.now)
            for key, outcome in (await self._settle(source.name, answer.usages)).items():
                if outcome in REFUSED:
                    continue
                waiting.pop(key, None)
                if outcome != KEPT:  # still open until the inbox is booked: noted as asked
                    asked.pop(key, None)

    async def _answer(
        self, source: UsageSource, requests: Sequence[OverdueRequest]
    ) -> SourceAnswer:
        """What the source answers; a fault of its adapter's own must not keep holds open."""
        try:
            return await source.ask(requests, self.seconds_left)
        except QuotaWorkerError:
            raise
        except Exception as error:  # noqa: BLE001  the loop's edge: no source stops the tick
            detail = f"a fault of quota-worker's own: {type(error).__name__}"
            trouble = SourceTrouble(SourceCause.UNKNOWN_ANSWER, detail, "report it")
            return SourceAnswer(troubles=(trouble,), is_down=True)

    async def _settle(self, source: str, usages: Sequence[ToldUsage]) -> dict[tuple[str, str], str]:
        """Settle what was told; each request's outcome, but for those that stay locked.

        Where a tenant stays locked the usage goes to the inbox at the second attempt, so that
        it isn't lost should nobody know it later.
        """
        done: dict[tuple[str, str], str] = {}
        left = list(usages)
        for attempt in range(1, SETTLE_ATTEMPTS + 1):
            if not left:
                break
            outcomes = await self._outcomes(source, left, keep=attempt > 1)
            locked: list[ToldUsage] = []
            for usage, outcome in zip(left, outcomes, strict=True):
                if outcome == LOCKED:
                    locked.append(usage)
                    continue
                done[usage.tenant_id, usage.request_id] = outcome
                self._tally.set_aside += outcome in REFUSED
                self._tally.lock_timeouts += outcome == KEPT
                self._tally.settled += outcome not in REFUSED | {KEPT, OVERTAKEN}
            left = locked
            if left and attempt < SETTLE_ATTEMPTS:
                await self._ctx.sleep(RETRY_WAIT_SECONDS * attempt)
        self._tally.lock_timeouts += bool(left)
        return done

    async def _outcomes(
        self, source: str, usages: Sequence[ToldUsage], *, keep: bool
    ) -> Sequence[str]:
        """As the ledger's ``settle``; one that the database refuses spoils no other.

        Halved until it is found: at most REFUSED_MAX of 1,000, each in about 20 calls.
        """
        try:
            return await self._ledger.settle(source, usages, self._ctx.now, keep=keep)
        except (LockTimeoutError, SerializationError):
            return [LOCKED] * len(usages)
        except DatabaseError as error:
            # errors of a class of their own are the database's, and of no usage
            is_of_usage = type(error) in {DatabaseError, InvalidInputError}
            if not is_of_usage or self._refused >= REFUSED_MAX:
                raise
            if len(usages) == 1:
                self._refused += 1
                await self._set_refused_aside(source, usages[0], error)
                return [FaultReason.INVALID]
        half = len(usages) // 2
        return [
            *await self._outcomes(source, usages[:half], keep=keep),
            *await self._outcomes(source, usages[half:], keep=keep),
        ]

    async def _set_refused_aside(self, source: str, usage: ToldUsage, error: DatabaseError) -> None:
        words = visible(f"the ledger's database refused it: {error}"[:EXCERPT_LETTERS])
        reason = FaultReason.INVALID
        fault = SourceFault(usage.tenant_id, usage.request_id, reason, words)
        await self._ledger.set_aside(source, [fault], self._ctx.now)
