"""A process that has imported the worker, and forks a child for each command line it is told.

The child runs the real command line. Around each await with a side effect it writes the
point's name to a pipe, and at the point it was told it kills itself; or the nursery kills it
some milliseconds after one, wherever it is then; or somebody else does, who is told its pid.
On stdin a line of JSON per command; on stdout a line with the pid, and after an empty line of
stdin, which lets the child go, one that says how it ended and which points it passed.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx

import worker
from worker import cli, rendering
from worker.assets import Assets
from worker.jobs import draining
from worker.models import OutboxMessage, SendRate
from worker.notifiers.base import BaseNotifier
from worker.notifiers.feishu_app import FeishuAppNotifier
from worker.notifiers.feishu_webhook import FeishuWebhookNotifier
from worker.notifiers.imbot import ImBotNotifier
from worker.notifiers.mail import MailNotifier
from worker.postgres.jobs import PostgresJobRuns
from worker.postgres.outbox import PostgresOutbox, PostgresWarnings
from worker.samples import AT, department_facts, tenant_facts

METHODS: tuple[tuple[type, str], ...] = (
    (PostgresJobRuns, "begin"),
    (PostgresJobRuns, "record"),
    (PostgresWarnings, "decide"),
    *((PostgresOutbox, name) for name in ("take_slot", "claim", "keep", "finish", "fail")),
)
NOTIFIERS: tuple[type[BaseNotifier], ...] = (
    FeishuAppNotifier,
    FeishuWebhookNotifier,
    ImBotNotifier,
    MailNotifier,
)
POINTS = tuple(
    f"{side} {name}"
    for name in (*(name for _, name in METHODS), "deliver", "deliver_digest")
    for side in ("before", "after")
)
# The rates are tested elsewhere; here they would only take time. Each grant is asked for all the same.
FAST = SendRate(per_second=1000, per_minute=1000)

# linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36

WARM_MODULES = (
    "aiosmtplib",
    "anyio._backends._asyncio",
    "asyncpg",
    "httpcore",
    "structlog",
    "tomllib",
)
WARM_PARTS = {"feishu": ("title", "md"), "im-bot": ("txt",), "email": ("title", "txt", "html")}


class Points:
    """Tells of each point that is passed, and dies at one of them."""

    def __init__(self, pipe: int, point: str | None, number: int) -> None:
        self._pipe = pipe
        self._point = point
        self._left = number

    def reached(self, point: str) -> None:
        os.write(self._pipe, f"{point}\n".encode())
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def surround(self, owner: type, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        async def surrounded(*arguments: Any, **named: Any) -> Any:
            self.reached(f"before {name}")
            result = await original(*arguments, **named)
            self.reached(f"after {name}")
            return result

        setattr(owner, name, surrounded)


def child(command: dict[str, Any], pipe: int, go: int) -> None:
    """Never returns: it ends as the command line does."""
    errors = os.open(command["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.environ.update(command["environ"], CRASH_PID=str(os.getpid()))
    points = Points(pipe, command.get("point"), command.get("number", 1))
    for owner, name in METHODS:
        points.surround(owner, name)
    for notifier in NOTIFIERS:
        points.surround(notifier, "deliver")
        points.surround(notifier, "deliver_digest")
        if notifier.rate is not None:
            notifier.rate = FAST
    # what failed waits for the next tick, and none of them is slept through
    draining.RETRY_WITHIN_RUN_SECONDS = 0.0
    sys.argv = ["quota-worker", *command["arguments"]]
    os.read(go, 1)
    code = 70
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        os._exit(code)


def watch(pid: int, pipe: int, kill_after: tuple[int, float] | None) -> dict[str, Any]:
    """Read the points until the child has ended; kill it so many points and seconds from now."""
    began, passed, kill_at = time.monotonic(), b"", None
    while True:
        if kill_after is not None and passed.count(b"\n") >= kill_after[0]:
            kill_at, kill_after = time.monotonic() + kill_after[1], None
        left = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        readable, _, _ = select.select([pipe], [], [], left)
        if not readable:
            os.kill(pid, signal.SIGKILL)
            kill_at = None
            continue
        chunk = os.read(pipe, 65_536)
        if not chunk:
            break
        passed += chunk
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    wait_for_orphans()
    return {
        "ended": os.waitstatus_to_exitcode(status),
        "points": passed.decode().splitlines(),
        "seconds": seconds,
    }


def adopt_orphans() -> None:
    """What a dead worker had started becomes this process's child, be it so young that it has done nothing yet."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def wait_for_orphans() -> None:
    """Until every program that the worker had started has ended, too."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def warm_up() -> None:
    """What every child would do again without a side effect: imports, templates, certificates."""
    ours = (found.name for found in pkgutil.walk_packages(worker.__path__, "worker."))
    for name in (*WARM_MODULES, *ours):
        if name != "worker.__main__":
            importlib.import_module(name)
    renderer = rendering.Renderer(Assets())
    facts = (("tenant-warn", tenant_facts("t")), ("department-warn", department_facts("d")))
    samples = [
        OutboxMessage(n, kind, "", one["severity"], "en", json.dumps(one), 1, "k", AT)
        for n, (kind, one) in enumerate(facts)
    ]
    for family, parts in WARM_PARTS.items():
        for part in parts:
            renderer.render_digest(samples, family, part)
            for message in samples:
                renderer.render(message, family, part)
    rendering.Renderer = lambda _assets: renderer  # type: ignore[assignment,misc]
    client, context = httpx.AsyncClient, httpx.create_ssl_context()
    httpx.AsyncClient = functools.partial(client, verify=context)  # type: ignore[assignment,misc]


def main() -> None:
    warm_up()
    adopt_orphans()
    for line in sys.stdin:
        command = json.loads(line)
        reader, writer = os.pipe()
        go_reader, go_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.close(go_writer)
            child(command, writer, go_reader)
        os.close(writer)
        os.close(go_reader)
        print(json.dumps({"pid": pid}), flush=True)  # noqa: T201
        sys.stdin.readline()
        os.write(go_writer, b"g")
        os.close(go_writer)
        print(json.dumps(watch(pid, reader, command.get("kill_after"))), flush=True)  # noqa: T201
        os.close(reader)


class Nursery:
    """The other end: starts such a process, and runs command lines in it one after the other."""

    def __init__(self, stderr: Path) -> None:
        self._stderr = stderr

    async def start(self) -> None:
        root = Path(__file__).parents[2]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def begin(self, arguments: list[str], environ: dict[str, str], **fate: Any) -> int:
        """The pid of a child that is about to run; `end` lets it."""
        command = {"arguments": arguments, "environ": environ, "stderr": str(self._stderr), **fate}
        await self._tell(json.dumps(command))
        return int((await self._answer())["pid"])

    async def end(self) -> dict[str, Any]:
        """Let it go, and wait: how it ended, and the points it passed."""
        await self._tell("")
        return await self._answer()

    async def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        answer: dict[str, Any] = json.loads(line)
        return answer


if __name__ == "__main__":
    main()
