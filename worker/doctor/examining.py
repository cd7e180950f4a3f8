"""Asks for the facts, one bounded read after the other; one that fails is a finding of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from worker.doctor import delivery as reaching
from worker.doctor import limits, server, work
from worker.doctor.facts import OddFacts
from worker.doctor.finding import FAULT, WARNING, Finding, named, ok, one_line
from worker.errors import DatabaseUnreachableError, MissingRightError, QuotaWorkerError
from worker.settings import quiet_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from worker.doctor.facts import DoctorReads, ServerFacts, TenantFacts
    from worker.settings import DeliverySettings

T = TypeVar("T")


class Surroundings(NamedTuple):
    """What this program knows without the database.

    `migrations`, `functions`: its own. `jobs`: each job's seconds between slots. `delivery` None:
    the configuration is wrong. `served`: the channels that messages may stand for here.
    `broken`: channels that can't be used. `embedded_home`: see `server.schema`.
    """

    where: str
    listen_dsn: str | None
    migrations: Sequence[str]
    functions: Collection[tuple[str, str]]
    jobs: Mapping[str, int]
    delivery: DeliverySettings | None
    served: Sequence[str]
    broken: Collection[str]
    embedded_home: str | None = None


class Examination:
    """One look at everything in the database. Built once, run once."""

    def __init__(
        self, reads: DoctorReads, around: Surroundings, clock: Callable[[], datetime]
    ) -> None:
        self._reads = reads
        self._around = around
        self._clock = clock
        self._findings: list[Finding] = []
        self._unread: dict[tuple[str, str], list[str]] = {}
        self.schema_name: str | None = None

    async def run(self) -> list[Finding]:
        """The findings in the order in which things were looked at. Never raises what reads do."""
        try:
            found = await self._server()
            if found is not None:
                await self._frame(found)
        except DatabaseUnreachableError as error:
            what = one_line(str(error))
            self._add([Finding("database", FAULT, what, "quota-worker doctor, once it answers")])
        for (reason, cure), checks in self._unread.items():
            what = f"could not be looked at: {named(checks)}: {reason}"
            self._add([Finding("unread", WARNING, what, cure)])
        return self._findings

    async def _server(self) -> ServerFacts | None:
        before = self._clock()
        found = await self._read("database", self._reads.server())
        after = self._clock()
        if found is None:
            return None
        self._add(ok("database", f"{one_line(found.database)} at {one_line(self._around.where)}"))
        self._add(server.version(found))
        self._add(server.writable(found))
        self._add(server.durability(found))
        self._add(server.session(found))
        self._add(server.pooler(found, self._around.listen_dsn))
        self._add(server.connections(found))
        self._add(server.clock((before + (after - before) / 2 - found.at).total_seconds()))
        self.schema_name = found.schema_name
        return found

    async def _frame(self, found: ServerFacts) -> None:
        """Schema and rights; what is in the tables only where they are this version's."""
        around = self._around
        if found.schema_name is not None:
            rights = await self._read("rights", self._reads.rights())
            if rights is not None:
                self._add(server.rights(found, rights))
        unread = len(self._unread)
        schema = await self._read("schema", self._reads.schema())
        if len(self._unread) == unread:
            told = server.schema(
                found, schema, around.migrations, around.functions, around.embedded_home
            )
            self._add(told)
            if any(finding.severity == FAULT for finding in told):
                return
        await self._zone()
        tenants = await self._limits()
        await self._work(tenants)
        if around.delivery is not None:
            await self._delivery(around.delivery)

    async def _zone(self) -> None:
        found = await self._read("zone", self._reads.zone())
        if found is None:
            return
        told = server.zone(found)
        self._add(told)
        if told[0].severity == FAULT:
            return
        days = server.instants(self._clock())
        offsets = await self._read("zone-rules", self._reads.offsets(found.billing_zone, days))
        if offsets is not None:
            self._add(server.zone_rules(found.billing_zone, days, offsets))

    async def _limits(self) -> TenantFacts | None:
        tenants = await self._read("tenants", self._reads.tenants())
        if tenants is not None:
            self._add(limits.tenants(tenants))
        odd = [
            await self._read("limits", self._reads.odd(query)) or OddFacts((), 0)
            for query in ("doctor_odd_tenants", "doctor_odd_budgets")
        ]
        self._add(limits.odd(*odd))
        tiers = await self._read("tiers", self._reads.odd("doctor_tiers"))
        if tiers is not None:
            self._add(limits.tiers(tiers))
        return tenants

    async def _work(self, tenants: TenantFacts | None) -> None:
        around, reads = self._around, self._reads
        ticks = await self._read("ticks", reads.ticks())
        if ticks is not None:
            self._add(work.ticks(ticks, enforcing=tenants is not None and tenants.enforcing > 0))
            jobs = await self._read("jobs", reads.jobs(list(around.jobs)))
            if jobs is not None:
                self._add(work.jobs(jobs, around.jobs, ticks.at))
            if around.delivery is not None:
                attended = ticks.last_at is None
                self._add(reaching.console_only(around.delivery, attended=attended))
        asking = None if around.delivery is None else around.delivery.asking
        sources = asking is not None and bool(asking.sources)
        wait = work.OVERDUE_SECONDS + (asking.wait_seconds if asking and sources else 0)
        backlog = await self._read("backlog", reads.backlog(wait))
        if backlog is not None:
            self._add(work.backlog(backlog))
        requests = await self._read("requests", reads.requests())
        if requests is not None:
            self._add(work.requests(requests))
        answers = await self._read("sources", reads.sources())
        if answers is not None:
            self._add(work.sources(answers, configured=sources))
        drift = await self._read("drift", reads.drift())
        if drift is not None:
            self._add(work.drift(drift))

    async def _delivery(self, delivery: DeliverySettings) -> None:
        reads = self._reads
        outbox = await self._read("outbox", reads.outbox(quiet_document(delivery)))
        if outbox is not None:
            now = self._clock()
            self._add(work.dead(outbox, now))
            self._add(work.waiting(outbox, self._around.served, now))
        broken = set(self._around.broken)
        channels = await self._read("channels", reads.channels())
        if channels is not None:
            self._add(reaching.channels(delivery, channels))
            broken |= set(reaching.failing(channels))
        if reaching.reachable(delivery):  # else console-only says it all
            groups = await self._read("routes", reads.subjects(*reaching.named_by_routes(delivery)))
            if groups is not None:
                self._add(reaching.routes(delivery, groups, broken))
        ownerless = await self._read("owners", reads.ownerless())
        if ownerless is not None:
            self._add(reaching.owners(delivery, ownerless, broken))

    def _add(self, findings: Sequence[Finding]) -> None:
        self._findings.extend(findings)

    async def _read(self, check: str, read: Awaitable[T]) -> T | None:
        """What the read tells; None: it failed, and that is noted. Raises where nothing answers."""
        cure = "quota-worker doctor again, with --debug for the details"
        try:
            return await read
        except DatabaseUnreachableError:
            raise
        except MissingRightError:
            key = ("this user may not read them", "see rights")
        except QuotaWorkerError as error:
            key = (one_line(str(error)), cure)
        except Exception as error:  # noqa: BLE001  a check that fails is a finding, and no crash
            key = (one_line(f"{type(error).__name__}: {error}"), cure)
        self._unread.setdefault(key, []).append(check)
        return None
