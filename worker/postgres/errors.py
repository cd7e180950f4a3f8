"""SQLSTATE → our error classes. asyncpg has no class for ours: `.sqlstate` decides."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from worker import errors
from worker.telemetry import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

# Raised by our SQL functions (QW001, QW002) and by migrate (QW003 to QW006).
CONFLICT = "QW001"
INVALID = "QW002"
NEWER_SCHEMA = "QW003"
OLD_SERVER = "QW004"
AMBIGUOUS_SCHEMA = "QW005"
UNFIT_TABLE = "QW006"
LOCK_NOT_AVAILABLE = "55P03"
NO_LOGIN = "28000"
# Words of the server and of asyncpg: neither has a code for it.
TLS_NEEDED = "no encryption"
NO_TLS = "rejected SSL upgrade"

_CLASSES: dict[str, type[errors.DatabaseError]] = {
    CONFLICT: errors.ConflictError,
    INVALID: errors.InvalidInputError,
    NEWER_SCHEMA: errors.SchemaNewerError,
    OLD_SERVER: errors.UnsupportedServerError,
    AMBIGUOUS_SCHEMA: errors.SchemaAmbiguousError,
    UNFIT_TABLE: errors.SchemaUnfitError,
    LOCK_NOT_AVAILABLE: errors.LockTimeoutError,
    "40001": errors.SerializationError,
    "40P01": errors.SerializationError,
    "42P01": errors.SchemaMissingError,  # undefined table
    "42703": errors.SchemaMissingError,  # undefined column
    "42883": errors.SchemaMissingError,  # undefined function
    "3F000": errors.SchemaMissingError,  # no schema to create in
    "42501": errors.MissingRightError,
    "3D000": errors.DatabaseMissingError,  # no such database
    "25006": errors.DatabaseReadOnlyError,
    "53100": errors.DatabaseFullError,
    "53300": errors.DatabaseBusyError,  # too many connections
    "57P01": errors.DatabaseUnreachableError,  # server shuts down
    "57P02": errors.DatabaseUnreachableError,
    "57P03": errors.DatabaseUnreachableError,  # server starts up
}
_BY_GROUP: dict[str, type[errors.DatabaseError]] = {
    "08": errors.DatabaseUnreachableError,
    "28": errors.DatabaseAccessError,
}
# Messages written by us are complete; the server's own need our advice after them.
_OWN = frozenset({CONFLICT, INVALID, NEWER_SCHEMA, OLD_SERVER, AMBIGUOUS_SCHEMA, UNFIT_TABLE})


def sqlstate_of(error: BaseException) -> str | None:
    """The SQLSTATE an asyncpg error carries, or None."""
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def translate(error: BaseException) -> errors.QuotaWorkerError | None:
    """Our error for one of asyncpg, of a socket or of a time limit; None for any other.

    The text never contains a DSN or password: it is redacted.
    """
    if isinstance(error, errors.QuotaWorkerError):
        return error
    state = sqlstate_of(error)
    text = redact(" ".join(_words(error, state).split()))
    if state is not None:
        return _from_server(state, text)
    found: type[errors.QuotaWorkerError]
    if isinstance(error, OSError):  # TimeoutError and ConnectionError are OSErrors
        found = errors.DatabaseUnreachableError
        if NO_TLS in text:
            found = errors.DatabaseNoTlsError
        return found(_advised(text or "no answer in time", found))
    if type(error).__module__.startswith("asyncpg"):
        # InternalClientError: the driver's word for a connection that broke in mid-call.
        if type(error).__name__ == "InternalClientError" or (
            "connection" in text and ("closed" in text or "released" in text)
        ):
            # its own words are of its state machine, and help nobody
            found = errors.DatabaseUnreachableError
            return found(_advised("the database connection was lost", found))
        return errors.ConfigurationError(f"POSTGRES_DSN or a call is wrong: {text}")
    return None


def _words(error: BaseException, state: str | None) -> str:
    """What the error says; of the server's hints those that we know better are left out."""
    if _CLASSES.get(state or "") is errors.SchemaMissingError and error.args:
        return str(error.args[0])
    return str(error)


def _from_server(state: str, text: str) -> errors.DatabaseError:
    if state == LOCK_NOT_AVAILABLE:
        # The server's text says "timeout", which some schedulers take for another fault.
        return errors.LockTimeoutError()
    found = _CLASSES.get(state) or _BY_GROUP.get(state[:2]) or errors.DatabaseError
    if state == NO_LOGIN and TLS_NEEDED in text:
        found = errors.TlsNeededError
    return found(text if state in _OWN else _advised(text, found))


def _advised(text: str, found: type[errors.QuotaWorkerError]) -> str:
    return f"{text} ({found.default_message()})"


@contextmanager
def translated() -> Iterator[None]:
    """Raise our error in place of the driver's; others pass unchanged."""
    try:
        yield
    except Exception as error:
        ours = translate(error)
        if ours is None or ours is error:
            raise
        raise ours from error
