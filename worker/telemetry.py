"""Log lines on stderr: JSON where stderr is no terminal, readable text where it is.

structlog is imported with the first line that is emitted: a tick that has
nothing to say doesn't pay for it. Never logged: a DSN, a secret, a webhook's
token, a message's body.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import MutableMapping

REDACTED = "***"
# Texts may be long and somebody else's: no pattern looks at a letter again and again.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # postgres://user:password@host, redis://…, smtp://…: the whole authority, and where somebody
    # left a password's / as it is, what it makes of it.
    (re.compile(r"(://)[^\s@]{0,200}@"), rf"\1{REDACTED}@"),
    # Everything after the host of a webhook may be its token.
    (re.compile(r"(\bhttps?://[^\s/\"'?#]+)[/?#][^\s\"']*", re.IGNORECASE), rf"\1/{REDACTED}"),
    # key=value and "key": "value", in DSNs, queries and JSON.
    (
        re.compile(
            r"((?:password|passwd|passphrase|secret|token|api_?key|authorization|sign)"
            r"[\"']?\s*[=:]\s*)(?:(?:bearer|basic)\s+)?"
            # a text that was cut may have lost its last quote
            r"(\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|[^\s,;&\"']+)",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)
_HARMLESS = frozenset(
    {"host", "port", "user", "database", "dbname", "application_name"}
    | {"target_session_attrs", "options", "search_path"}
)
# Any other word there is no mode, and stands in a wrong place.
_SSL_MODES = frozenset(
    f"sslmode={mode}"
    for mode in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
)
_RANKS = {"debug": 0, "info": 1, "warning": 2, "error": 3}
# Schedulers read a cause into these words of whatever failed: Hermes 0.19 tells a chat of a fault
# of its model's provider instead.
# As texts: only a tick that failed compiles them.
_MISTAKEN = (
    (r"\btimeouts?\b|timed out", "out of time"),
    (r"_timeouts?", "_waits"),
    (r"timeout", "OutOfTime"),
    (r"\w*authenticat\w*", "login"),
    (r"\w*authoriz\w*", "right"),
    (r"(?:rate|usage) limit", "limit"),
)
_UTF8 = frozenset({"utf-8", "utf8", "utf-8-sig"})
_SECRET_KEY = re.compile(
    r"password|secret|token$|webhook|dsn$|authorization|api_?key$|^body$|^message_body$",
    re.IGNORECASE,
)


def is_utf8(stream: TextIO) -> bool:
    """Whether the stream can show every letter; else JSON needs its own escapes."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-") in _UTF8


def redact(text: str) -> str:
    """The text without passwords, tokens, and anything after a web address's host."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def unmistaken(text: str) -> str:
    """The text of a failed tick without the words that a scheduler takes for another fault's."""
    for pattern, replacement in _MISTAKEN:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    return text


def shown_dsn(dsn: str) -> str:
    """A DSN for people to copy: less passwords, and parameters that aren't known as harmless."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(dsn)
    except ValueError:
        parts = None
    # a password's / ? or # as it is ends the address before its host
    if parts is None or ("@" not in parts.netloc and "@" in dsn):
        return f"{dsn.partition('://')[0]}://{REDACTED}" if "://" in dsn else REDACTED
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    query = [
        pair
        if pair.partition("=")[0].lower() in _HARMLESS or pair.lower() in _SSL_MODES
        else f"{pair.partition('=')[0]}={REDACTED}"
        for pair in parts.query.split("&")
        if pair
    ]
    return (
        f"{parts.scheme}://{user}{f':{REDACTED}' if colon else ''}{at}{hosts}{parts.path}"
        f"{'?' if query else ''}{'&'.join(query)}"
    )


def redact_value(key: str, value: object) -> object:
    """A field's value for a log line: hidden where the key names a secret."""
    if _SECRET_KEY.search(key):
        return REDACTED
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: redact_value(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value("", v) for v in value]
    if isinstance(value, BaseException):
        return redact(f"{type(value).__name__}: {value}")
    return value


def _redact_event(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {key: redact_value(key, value) for key, value in event.items()}


def _shorten_time(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Hundredths are enough; of longer numbers one in 250 holds a 429, which is mistaken, too."""
    whole, dot, fraction = event["timestamp"].partition(".")
    event["timestamp"] = f"{whole}.{fraction[:2]}Z" if dot else whole
    return event


def remark(text: str) -> None:
    """One line for stderr, where it can be written: nothing depends on it."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")


class Log:
    """A logger with fields bound to it. Lines go to `stream`, by default stderr."""

    def __init__(
        self,
        stream: TextIO | None = None,
        fields: dict[str, Any] | None = None,
        *,
        debug: bool = False,
        level: str = "info",
    ) -> None:
        """`level`: info, warning or error, the least that is told; `debug` tells all."""
        self._stream = stream
        self._fields = fields or {}
        self._debug = debug
        self._level = level
        self._logger: Any = None

    def bind(self, **fields: object) -> Log:
        """A logger that adds these fields to each line."""
        return Log(self._stream, {**self._fields, **fields}, debug=self._debug, level=self._level)

    def debug(self, event: str, **fields: object) -> None:
        """Tell details, only with --debug."""
        self._emit("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Tell what was done."""
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Tell what somebody should look at."""
        self._emit("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Tell what failed."""
        self._emit("error", event, fields)

    def _emit(self, level: str, event: str, fields: dict[str, object]) -> None:
        if not self._debug and _RANKS[level] < _RANKS[self._level]:
            return
        if self._logger is None:
            self._logger = self._make()
        # a log that can't be written, on a full disk or without a reader, stops no work
        with suppress(OSError):
            getattr(self._logger, level)(event, **{**self._fields, **fields})

    def _make(self) -> Any:  # noqa: ANN401  structlog's own bound loggers are Any
        import structlog

        stream = self._stream or sys.stderr
        on_terminal = stream.isatty()
        render: Any = (
            structlog.dev.ConsoleRenderer(colors=True)
            if on_terminal
            else structlog.processors.JSONRenderer(ensure_ascii=not is_utf8(stream), default=str)
        )
        return structlog.wrap_logger(
            structlog.PrintLogger(stream),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _shorten_time,
                _redact_event,
                render,
            ],
            cache_logger_on_first_use=True,
        )
