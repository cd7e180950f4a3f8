"""Looks names up so that a resolver which hangs holds up nothing else, nor the program's end.

The system's resolver can't be interrupted. asyncio runs it on a few shared threads, which the
program waits for in the end: a few hanging lookups hold up all others, and the end. Here each
name has a thread of its own that nobody waits for, and equal lookups share one.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    Key = tuple[bytes | str | None, bytes | str | int | None, int, int, int, int]

# Of different names at once: more are never configured, unless lookups hang for very long.
LOOKUPS_MAX: Final = 256


class LookupWatch:
    """Whether the last lookup within it was given up before it had an answer."""

    def __init__(self) -> None:
        self.is_unresolved = False

    def words(self, seconds: float) -> str:
        """What was the matter, for people."""
        return f"the host's name was not resolved within {seconds:.2g} s"


CURE: Final = "check the host's spelling in the address, and this machine's DNS, which is slow"
_WATCH: Final[ContextVar[LookupWatch | None]] = ContextVar("lookup_watch", default=None)


@contextmanager
def watched_lookups() -> Iterator[LookupWatch]:
    """Watch the lookups of what runs inside, and of the tasks that it starts."""
    watch = LookupWatch()
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


class ProgramLoop(asyncio.SelectorEventLoop):
    """The program's event loop: it waits for no thread in the end."""

    def __init__(self) -> None:
        super().__init__()
        self._lookups: dict[Key, list[asyncio.Future[Any]]] = {}

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002  asyncio's own word
        proto: int = 0,
        flags: int = 0,
    ) -> Any:  # noqa: ANN401  as the system's
        """As asyncio's, but for the thread; cancelled at once."""
        key = (host, port, family, type, proto, flags)
        if key not in self._lookups:
            if len(self._lookups) >= LOOKUPS_MAX:
                raise socket.gaierror(socket.EAI_AGAIN, "too many names are looked up at once")
            threading.Thread(target=self._look_up, args=(key,), daemon=True).start()
            self._lookups[key] = []
        told: asyncio.Future[Any] = self.create_future()
        self._lookups[key].append(told)
        watch = _WATCH.get()
        try:
            found = await told
        except asyncio.CancelledError:
            if watch is not None:
                watch.is_unresolved = True
            raise
        if watch is not None:
            watch.is_unresolved = False
        return found

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Return at once: what a thread still does, nobody waits for."""

    def _look_up(self, key: Key) -> None:
        host, port, family, kind, proto, flags = key
        found: Any = None
        error: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, family, kind, proto, flags)
        except Exception as failed:  # noqa: BLE001  it is whose who asked
            error = failed
        with suppress(RuntimeError):  # the loop is closed
            self.call_soon_threadsafe(self._tell, key, found, error)

    def _tell(self, key: Key, found: object, error: Exception | None) -> None:
        for told in self._lookups.pop(key):
            if told.done():
                continue
            if error is None:
                told.set_result(found)
            else:
                told.set_exception(error)
