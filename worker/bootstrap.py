"""The composition root: the only room that knows every adapter.

`Deps` is what a command is handed. Each thing is opened when first asked for
and closed once, when the command is over; nothing heavy is imported before.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TextIO

from worker.answers import tell
from worker.assets import Assets
from worker.errors import SchemaMissingError
from worker.settings import DeliverySettings, Settings, load_settings
from worker.telemetry import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import asyncpg

    from worker.errors import QuotaWorkerError
    from worker.jobs.context import Asking, JobPorts
    from worker.notifiers.channels import ConfiguredChannels
    from worker.postgres.audit import PostgresAudit
    from worker.postgres.crossings import PostgresCrossings
    from worker.postgres.diagnosis import PostgresEstimates
    from worker.postgres.doctor import PostgresDoctor
    from worker.postgres.embedded import EmbeddedServer
    from worker.postgres.jobs import PostgresJobRuns
    from worker.postgres.limits import PostgresLimits
    from worker.postgres.metrics import PostgresMetrics
    from worker.postgres.months import PostgresMonthsList
    from worker.postgres.reports import PostgresReports
    from worker.postgres.roi import PostgresRoi
    from worker.postgres.roi_reports import PostgresRoiReports
    from worker.postgres.sources import PostgresSourceFaults
    from worker.sources.base import BaseSource


class Deps:
    """Everything a command may use; an async context manager owned by the cli."""

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str],
        load_delivery: Callable[[], DeliverySettings] = DeliverySettings,
        assets: Assets | None = None,
        debug: bool = False,
        console: TextIO | None = None,
    ) -> None:
        self.settings = settings
        self._load_delivery = load_delivery  # as it stands: the console alone
        self._delivery: DeliverySettings | None = None
        self.environ = environ
        self.assets = assets or Assets()
        self.log = Log(debug=debug, level=settings.log_level)
        self._console = console  # where the console channel writes; None: stderr
        self._server: EmbeddedServer | None = None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._pool_lock = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._stack.aclose()
        finally:
            if self._server is not None:
                self._server.leave()

    def dsn(self) -> str:
        """POSTGRES_DSN, else the embedded server's, which is started on the first call."""
        if self.settings.postgres_dsn is not None:
            return self.settings.postgres_dsn
        if self._server is None:
            from worker.postgres.accounts import default_home
            from worker.postgres.embedded import EmbeddedServer

            server = EmbeddedServer(
                default_home(self.environ), keep_running=self.settings.keep_server
            )
            server.start()
            self._server = server
        return self._server.dsn

    def whereabouts(self) -> dict[str, str]:
        """Where the database is, without secrets: its address, and the embedded server's folder."""
        from worker.telemetry import shown_dsn

        found = {"database": shown_dsn(self.dsn())}
        if self._server is not None:
            found["data folder"] = str(self._server.home)
        return found

    def tell_embedded(self) -> None:
        """A remark where no POSTGRES_DSN is set: it may have been forgotten."""
        folder = self.whereabouts().get("data folder")
        if folder is not None:
            tell(f"no POSTGRES_DSN: the embedded server in {folder}")

    def explained(self, error: QuotaWorkerError) -> QuotaWorkerError:
        """The error of a command that used the embedded server: it may be the wrong database."""
        if self._server is None or not isinstance(error, SchemaMissingError):
            return error
        where = f"no POSTGRES_DSN is set, so this is the embedded server in {self._server.home}"
        return type(error)(f"{error}; {where}")

    async def connection(
        self, command_timeout_seconds: float | None = None
    ) -> asyncpg.Connection[asyncpg.Record]:
        """A connection of its own, closed with the command. Raises as `pool.connect`."""
        from worker.postgres import pool

        connection = await pool.connect(
            self.dsn(), command_timeout_seconds or pool.COMMAND_TIMEOUT_SECONDS
        )
        self._stack.push_async_callback(connection.close)
        return connection

    async def pool(self) -> asyncpg.Pool[asyncpg.Record]:
        """The command's one pool, opened on the first call with one connection."""
        async with self._pool_lock:  # a long-running process asks from several tasks
            if self._pool is None:
                from worker.postgres.pool import open_pool

                self._pool = await open_pool(self.dsn())
                self._stack.push_async_callback(self._pool.close)
        return self._pool

    def delivery(self) -> DeliverySettings:
        """Channels and routes, read on the first call. Raises ConfigurationError."""
        if self._delivery is None:
            self._delivery = self._load_delivery()
        return self._delivery

    def tell_variables(self) -> None:
        """Remarks on variables that may have been meant otherwise. Raises as `delivery`."""
        from worker.configuration.variables import variable_remarks

        for note in variable_remarks(self.environ, self.delivery()):
            tell(f"note: {note}")

    def channels(self) -> ConfiguredChannels:
        """The configured channels. Raises as `delivery`."""
        from worker.notifiers.channels import ConfiguredChannels

        return ConfiguredChannels.from_delivery(
            self.delivery(), self.assets, environ=self.environ, stream=self._console
        )

    async def job_ports(self, channels: ConfiguredChannels) -> JobPorts:
        """The adapters that jobs see, on the command's pool; the caller closes the channels."""
        from worker.jobs.context import JobPorts
        from worker.postgres.diagnosis import PostgresDiagnosis
        from worker.postgres.jobs import PostgresMonths
        from worker.postgres.ledger import PostgresLedger, PostgresOutlook
        from worker.postgres.outbox import OutboxRules, PostgresOutbox, PostgresWarnings
        from worker.postgres.queries import load_queries
        from worker.postgres.upkeep import PostgresUpkeep
        from worker.postgres.watch import PostgresWatch

        queries = load_queries(self.assets, "ledger")
        outbox = load_queries(self.assets, "outbox")
        pool = await self.pool()
        rules = OutboxRules(channels.served, channels.fallbacks, channels.quiet)
        ledger = PostgresLedger(pool, queries)
        return JobPorts(
            ledger=ledger,
            expiry=ledger,
            months=PostgresMonths(pool, load_queries(self.assets, "jobs")),
            warnings=PostgresWarnings(pool, outbox, channels.routes),
            outbox=PostgresOutbox(pool, outbox, rules),
            channels=channels,
            diagnosis=PostgresDiagnosis(
                pool,
                load_queries(self.assets, "diagnosis"),
                channels.routes,
                self.delivery().diagnosis,
            ),
            outlook=PostgresOutlook(pool, queries),
            watch=PostgresWatch(
                pool, load_queries(self.assets, "watch"), channels.routes, self.delivery().watch
            ),
            upkeep=PostgresUpkeep(
                pool, load_queries(self.assets, "upkeep"), self.delivery().upkeep
            ),
            asking=await self._asking(),
            reports=await self.roi_reports(),
        )

    async def _asking(self) -> Asking | None:
        """The usage sources of the configuration; None where there are none."""
        asking = self.delivery().asking
        if not asking.sources:
            return None
        from worker.jobs.context import Asking
        from worker.postgres.queries import load_queries
        from worker.postgres.sources import PostgresSourceLedger
        from worker.sources.makers import SourceNeeds, make_source

        queries = load_queries(self.assets, "sources")
        ledger = PostgresSourceLedger(await self.pool(), queries)
        needs = SourceNeeds(self.dsn, queries, ledger.take_slot)
        sources = tuple(make_source(settings, needs) for settings in asking.sources)
        return Asking(ledger, sources, asking.wait_seconds, asking.ask_seconds)

    def source(self, name: str) -> BaseSource:
        """The configured source of this name, for one request by hand: its rate isn't kept.

        Raises KeyError where none is called so. Nothing is opened yet.
        """
        from worker.postgres.queries import load_queries
        from worker.sources.makers import SourceNeeds, make_source

        settings = {source.name: source for source in self.delivery().asking.sources}[name]
        return make_source(
            settings, SourceNeeds(self.dsn, load_queries(self.assets, "sources"), None)
        )

    async def source_faults(self) -> PostgresSourceFaults:
        """What was set aside of the sources' answers."""
        from worker.postgres.queries import load_queries
        from worker.postgres.sources import PostgresSourceFaults

        return PostgresSourceFaults(await self.pool(), load_queries(self.assets, "sources"))

    async def job_runs(self) -> PostgresJobRuns:
        """The tick's lease and the record of runs."""
        from worker.postgres.jobs import PostgresJobRuns
        from worker.postgres.queries import load_queries

        return PostgresJobRuns(await self.pool(), load_queries(self.assets, "jobs"))

    def crossings(self) -> PostgresCrossings:
        """What waits for crossings, listening where a connection of its own can."""
        from worker.clock import monotonic_seconds
        from worker.postgres.crossings import PostgresCrossings
        from worker.postgres.queries import load_queries

        def on_mode(mode: str, reason: str | None) -> None:
            if reason is None:
                self.log.info("watching for crossings", mode=mode)
            else:
                self.log.warning("watching for crossings", mode=mode, reason=reason)

        return PostgresCrossings(
            self.pool,
            load_queries(self.assets, "crossings"),
            self.settings.listen_dsn or self.dsn(),
            monotonic_seconds,
            on_mode,
            variable="QUOTA_WORKER_LISTEN_DSN" if self.settings.listen_dsn else "POSTGRES_DSN",
        )

    async def limits(self) -> PostgresLimits:
        """Limits, blocks and the record of changes, on a connection of its own."""
        from worker.postgres.limits import TIMEOUT_SECONDS, PostgresLimits
        from worker.postgres.queries import load_queries

        return PostgresLimits(
            await self.connection(TIMEOUT_SECONDS), load_queries(self.assets, "limits")
        )

    async def audit(self) -> PostgresAudit:
        """The ledger's audit and its repair."""
        from worker.postgres.audit import PostgresAudit
        from worker.postgres.queries import load_queries

        return PostgresAudit(await self.pool(), load_queries(self.assets, "audit"))

    async def estimates(self) -> PostgresEstimates:
        """The read of how far estimates lie from usage."""
        from worker.postgres.diagnosis import PostgresEstimates
        from worker.postgres.queries import load_queries

        return PostgresEstimates(await self.pool(), load_queries(self.assets, "diagnosis"))

    async def months(self) -> PostgresMonthsList:
        """The read of the billing months and their totals."""
        from worker.postgres.months import PostgresMonthsList
        from worker.postgres.queries import load_queries

        return PostgresMonthsList(await self.pool(), load_queries(self.assets, "months"))

    async def roi(self) -> PostgresRoi:
        """The read of a month's facts for its reports."""
        from worker.postgres.queries import load_queries
        from worker.postgres.roi import PostgresRoi

        return PostgresRoi(await self.pool(), load_queries(self.assets, "roi"))

    async def roi_reports(self) -> PostgresRoiReports | None:
        """Reports as revisions, with their mails; None where the configuration has none."""
        settings = self.delivery().report
        if settings is None:
            return None
        from worker.postgres.queries import load_queries
        from worker.postgres.roi_reports import PostgresRoiReports

        queries = load_queries(self.assets, "roi")
        return PostgresRoiReports(await self.pool(), queries, await self.roi(), settings)

    async def metrics(self) -> PostgresMetrics:
        """Reads for Prometheus."""
        from worker.postgres.metrics import PostgresMetrics
        from worker.postgres.queries import load_queries

        queries = load_queries(self.assets, "metrics")
        return PostgresMetrics(await self.pool(), queries, await self.reports())

    async def doctor(self) -> PostgresDoctor:
        """Reads for doctor, on a connection of its own that isn't waited for in the end."""
        from worker.postgres.doctor import READ_SECONDS, PostgresDoctor
        from worker.postgres.pool import connect
        from worker.postgres.queries import load_queries

        connection = await connect(self.dsn(), READ_SECONDS)
        self._stack.callback(connection.terminate)
        return PostgresDoctor(connection, load_queries(self.assets, "doctor"))

    async def reports(self) -> PostgresReports:
        """Reads for people."""
        from worker.postgres.queries import load_queries
        from worker.postgres.reports import PostgresReports

        return PostgresReports(await self.pool(), load_queries(self.assets, "status"))


def build_deps(
    *, debug: bool = False, config: str | None = None, environ: Mapping[str, str] | None = None
) -> Deps:
    """Read the settings of the environment; `config` is the channels' file, read when needed.

    Raises ConfigurationError.
    """
    env = os.environ if environ is None else environ

    def read_delivery() -> DeliverySettings:
        from worker.configuration import load_delivery

        return load_delivery(env, config)

    return Deps(load_settings(env), environ=env, load_delivery=read_delivery, debug=debug)
