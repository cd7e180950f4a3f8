"""Chats through an im-bot: runs `imbot send --group GROUP --text MESSAGE`.

The program is private, so what is known of it stands here: it answers OK and exits 0 when
the message went out. Nothing passes through a shell; one argument may hold at most
131,071 bytes on Linux and no NUL, and an argument that begins with '-' could be taken
for an option.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.models import FailureCause, SendRate
from worker.notifiers.base import BaseNotifier, SendFailedError, bot_of
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.models import Digest, OutboxMessage
    from worker.ports.delivery import Pace
    from worker.rendering import Renderer

# Below the kernel's limit for one argument, with room for a chat's own framing.
TEXT_MAX_BYTES: Final = 100_000
# Of a digest, what Feishu takes in one request, less its frame.
DIGEST_MAX_BYTES: Final = 18_000
OUTPUT_KEPT_BYTES: Final = 4096
KILL_WAIT_SECONDS: Final = 5.0
# After the program's end; what it wrote is in the pipe already.
ANSWER_WAIT_SECONDS: Final = 0.5
_INSTALL: Final = (
    "install it, or set `command` of the channel (QUOTA_WORKER_IMBOT_COMMAND without a file) to "
    "its path; the schedule's PATH is shorter than yours"
)
# The bytes of a UTF-8 character after its first.
_LEAD_BITS: Final = 0xC0
_CONTINUATION: Final = 0x80
_NOT_EXECUTABLE: Final = (126, 127)
# The chat's program needs none of ours.
_SECRET_NAMES: Final = frozenset({"POSTGRES_DSN", "DATABASE_URL", "PGPASSWORD", "PGPASSFILE"})


class ImBotNotifier(BaseNotifier):
    """`command` is the program with its leading arguments, `group` where it sends to.

    A message longer than one argument may be goes out in several, in order; a retry
    sends them all again. The dedupe key is in the child's environment as
    QUOTA_WORKER_MESSAGE_ID, with -1, -2 … after it where there are several.
    """

    channel = "im-bot"
    family = "im-bot"
    # It posts into the same groups as Feishu's own bots, under the same limits.
    rate = SendRate(per_second=3, per_minute=60)
    digest_over = 10

    def __init__(
        self,
        renderer: Renderer,
        command: Sequence[str],
        group: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(renderer)
        self._command = tuple(command)
        self._group = group
        self.bot = bot_of(*command, group)
        self._environ = dict(os.environ if environ is None else environ)

    async def deliver(self, message: OutboxMessage, pace: Pace) -> None:
        """Run the program once per piece; each must exit 0."""
        pieces = split_text(self.part(message, "txt"), TEXT_MAX_BYTES)
        for number, text in enumerate(pieces, start=1):
            if number > 1:
                await pace()
            # a program that drops an id it has seen must not drop the rest of the message
            suffix = f"-{number}" if len(pieces) > 1 else ""
            await self._run(safe_argument(text), message.dedupe_key + suffix)

    async def deliver_digest(self, digest: Digest) -> None:
        """Run the program once, for all of them."""
        text = self.digest_part(digest.messages, "txt")
        await self._run(safe_argument(text), digest.dedupe_key)

    def digest_fits(self, messages: Sequence[OutboxMessage]) -> bool:
        """Within what a chat shows of one message."""
        return len(self.digest_part(messages, "txt").encode()) <= DIGEST_MAX_BYTES

    async def _run(self, text: str, message_id: str) -> None:
        # A pipe of our own: a child of the program that lives on and keeps its stdout
        # must not keep us from seeing that the program itself has ended.
        reader, writer = os.pipe()
        stream = asyncio.StreamReader()
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream),
                os.fdopen(reader, "rb", buffering=0),
            )
        except BaseException:
            os.close(writer)
            raise
        try:
            try:
                process = await self._start(text, message_id, writer)
            finally:
                os.close(writer)
            judge_end(*await _wait_for_end(process, stream))
        finally:
            transport.close()

    async def _start(self, text: str, message_id: str, stdout: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                "send",
                "--group",
                self._group,
                "--text",
                text,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._child_environment(message_id),
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise SendFailedError(
                FailureCause.COMMAND_MISSING,
                *why_not_run(error, self._command[0], self._environ.get("PATH")),
            ) from None
        except OSError as error:
            program = visible(self._command[0])
            no_program = error.errno == errno.ENOEXEC
            raise SendFailedError(
                FailureCause.COMMAND_FAILED,
                f"{program} could not be started: {error.strerror}",
                f"give {program} a first line such as #!/bin/sh" if no_program else "",
            ) from None

    def _child_environment(self, message_id: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environ.items()
            if name not in _SECRET_NAMES and not name.startswith("QUOTA_WORKER_")
        }
        return kept | {"QUOTA_WORKER_MESSAGE_ID": message_id}


def safe_argument(text: str) -> str:
    """No NUL, and no '-' at the beginning: a space stands before it, which chats don't show."""
    text = text.replace("\0", "␀")
    return f" {text}" if text.startswith("-") else text


def split_text(text: str, max_bytes: int) -> list[str]:
    """The text in pieces of at most `max_bytes` of UTF-8, cut at line ends where possible.

    Nothing is left out: the pieces with the line breaks cut between them are the text.
    """
    pieces: list[str] = []
    rest = text.encode("utf-8", "backslashreplace")
    while len(rest) > max_bytes:
        cut = rest.rfind(b"\n", 1, max_bytes + 1)
        if cut > 0:
            piece, rest = rest[:cut], rest[cut + 1 :]
        else:
            cut = max_bytes
            while rest[cut] & _LEAD_BITS == _CONTINUATION:  # not inside a character
                cut -= 1
            piece, rest = rest[:cut], rest[cut:]
        pieces.append(piece.decode())
    pieces.append(rest.decode())
    return pieces


def judge_end(code: int, answer: bytes) -> None:
    """Return when the program said that the message went out, else raise SendFailedError."""
    if code in _NOT_EXECUTABLE:
        raise SendFailedError(
            FailureCause.COMMAND_MISSING,
            f"the im-bot command can't be run: exit {code}",
            "it is a script that found no program, or may not run one: the schedule's PATH is "
            "shorter than yours",
        )
    if code != 0:
        raise SendFailedError(
            FailureCause.COMMAND_FAILED, f"the im-bot command ended with exit {code}"
        )
    if answer.lstrip().lower().startswith((b"error", b"fail")):
        raise SendFailedError(
            FailureCause.COMMAND_FAILED, "the im-bot command answered with an error, not OK"
        )


def why_not_run(error: OSError, program: str, path: str | None) -> tuple[str, str]:
    """Which program was tried, why it can't be run, and what to do.

    Its name is that of the settings; without a slash it was looked for on `path`.
    """
    name, on_path = visible(program), "" if "/" in program else " on the PATH"
    folders = os.get_exec_path({} if path is None else {"PATH": path}) if on_path else [""]
    found = next((file for one in folders if (file := Path(one, program)).exists()), None)
    if found is None:
        return f"there is no program {name}{on_path}", _INSTALL
    shown = visible(str(found))
    if found.is_dir():
        return f"{shown} is a folder, no program", "set `command` of the channel to the program"
    if isinstance(error, PermissionError):
        return f"{shown} may not be run", f"chmod +x {shlex.quote(shown)}, as its owner"
    return (
        f"{shown} is there, but not the interpreter that its first line names",
        "install the interpreter, or correct the first line (#!…)",
    )


async def _wait_for_end(
    process: asyncio.subprocess.Process, stdout: asyncio.StreamReader
) -> tuple[int, bytes]:
    """The exit code and the beginning of stdout. Whatever happens, nothing is left running."""
    kept = bytearray()
    reading = asyncio.create_task(_read_answer(stdout, kept))
    try:
        code = await process.wait()
        await asyncio.wait({reading}, timeout=ANSWER_WAIT_SECONDS)
        return code, bytes(kept)
    finally:
        reading.cancel()
        await _end(process)


async def _read_answer(stdout: asyncio.StreamReader, kept: bytearray) -> None:
    """Keep the beginning; read and drop the rest, so that the program can go on."""
    while chunk := await stdout.read(OUTPUT_KEPT_BYTES):
        kept += chunk[: OUTPUT_KEPT_BYTES - len(kept)]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what still runs, its children too, and reap it. Nothing to do when it ended."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_WAIT_SECONDS):
            await process.wait()
