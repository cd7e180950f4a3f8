"""Parse, bootstrap, call, exit code. No logic; heavy imports only for the chosen command.

Exit codes: 0 done, nothing to do, or another tick at work; 1 a job failed; 2
wrong usage or configuration; 130 interrupted; 141 whoever read stdout went away.
Errors are one line on stderr.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from worker import __version__
from worker.commands import COMMANDS
from worker.errors import OutputError, QuotaWorkerError, ReaderGoneError, UsageError
from worker.telemetry import remark

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_COLUMNS = 80
GC_THRESHOLD_OBJECTS = 50_000
# A tick ends by itself after 240 s; this is for one that can't.
BOUNDED = frozenset({"tick", "run"})
CUT_OFF_SECONDS = 270
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # as a shell tells of a program that SIGPIPE ended
PROGRAM = "quota-worker"
CONFIG_OPTION = "--config"
# Arguments that name files, which may be of any bytes.
FILES = frozenset({"config", "facts", "output"})


class _Help(argparse.HelpFormatter):
    """As wide as the terminal, asked without shutil, whose imports a cold start would pay for."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 0
        super().__init__(prog, width=(columns or DEFAULT_COLUMNS) - 2)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and what may have been meant."""

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401  argparse's own arguments
        super().__init__(formatter_class=_Help, **arguments)
        self._words: list[str] = []

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  argparse's own
        """As argparse, but the words are kept for an error's advice."""
        self._words = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        advice = self._advice(message) or message
        remark(f"{self.prog}: {advice} (see {self.prog} --help)")
        raise SystemExit(EXIT_USAGE)

    def _advice(self, message: str) -> str | None:
        """The word that looks like a typing error, and what it is near to; None: no word does."""
        from difflib import get_close_matches

        from worker.untrusted import for_terminal

        options, choices = self._known()
        # an option's typing error comes first: its value is taken for a command then
        unknown = [
            word.partition("=")[0]
            for word in self._words
            if word.startswith("--")
            and not any(o.startswith(word.partition("=")[0]) for o in options)
        ]
        pairs = [(word, options) for word in unknown]
        if "invalid choice" in message:
            pairs += [
                (word, choices)
                for word in self._words
                if not word.startswith("-") and word not in choices
            ]
        for word, known in pairs:
            near = get_close_matches(word.lower(), known, n=1)
            if near:
                return f"{for_terminal(word)} is not known: did you mean {near[0]}?"
        return None

    def _known(self) -> tuple[list[str], list[str]]:
        """The options of this parser and of its commands, and the commands' names."""
        options: list[str] = []
        choices: list[str] = []
        for action in self._actions:
            options += action.option_strings
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                choices += list(action.choices)
                for inner in action.choices.values():
                    options += inner._known()[0]  # noqa: SLF001  the same class
        return options, choices


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser; only the chosen command's own arguments are known, None: of all."""
    parser = _Parser(prog=PROGRAM, description="Token quotas that hold, and alerts that arrive.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and details")
    parser.add_argument(CONFIG_OPTION, metavar="FILE", help="channels and routes, a TOML file")
    # with `prog` argparse makes no help formatter, whose imports a cold start would pay for
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog=PROGRAM)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if chosen in {None, name}:
            _module(name).add_arguments(command)
            _add_global_arguments(command)
    return parser


def _add_global_arguments(parser: argparse.ArgumentParser) -> None:
    """They may stand behind the command, and behind its own commands, too."""
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument(CONFIG_OPTION, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for action in parser._actions:  # noqa: SLF001  argparse tells of them in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                _add_global_arguments(inner)


def run(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code, never raises but SystemExit of argparse."""
    # Without a known command argparse needs the names only, to say what is wrong.
    chosen = _chosen(argv)
    debug = "--debug" in argv
    try:
        args = build_parser(chosen).parse_args(argv)
        if args.command is None:
            return _list_commands()
        return _call(args)
    except KeyboardInterrupt:
        remark(f"{PROGRAM}: interrupted")
        return EXIT_INTERRUPTED
    except ReaderGoneError:
        _drop_answers()
        return EXIT_READER_GONE
    except Exception as error:  # noqa: BLE001  the program's edge: one line, no traceback
        if debug:
            _print_traceback()
        return _report(error, of_tick=chosen in BOUNDED)


def _chosen(argv: Sequence[str]) -> str:
    """The first word that is a command and no file's name; empty where there is none."""
    previous = ""
    for word in argv:
        if word in COMMANDS and previous != CONFIG_OPTION:
            return word
        previous = word
    return ""


def main() -> None:
    """The console script."""
    # The collector's passes over what imports leave behind are a tenth of a cold start.
    gc.set_threshold(GC_THRESHOLD_OBJECTS)
    _prepare_streams()
    if _chosen(sys.argv[1:]) in BOUNDED:
        signal.signal(signal.SIGALRM, _cut_off)
        signal.alarm(CUT_OFF_SECONDS)
    try:
        code = run(sys.argv[1:])
    except SystemExit as end:  # argparse's, after --help and --version
        code = end.code if isinstance(end.code, int) else 0
    code = _flush() or code
    _drop_remarks()
    if threading.active_count() > 1:
        # a library's thread that still waits for an answer would be waited for
        os._exit(code)
    sys.exit(code)


def _cut_off(_number: int, _frame: object) -> NoReturn:
    """The end of a tick that ends in no other way: its database or its stderr hangs.

    What it held is done by the next one, as after a kill.
    """
    # stderr may be what hangs, or be closed or full
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            text = f"{PROGRAM}: cut off after {CUT_OFF_SECONDS} s: something hangs, see README"
            os.write(2, f"{text}\n".encode())
    os._exit(EXIT_FAILED)


def _drop_remarks() -> None:
    """What stderr didn't take is lost; Python's own end would fail for it."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _prepare_streams() -> None:
    """No output fails for a letter that its encoding lacks, nor a message for want of stderr."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.FileIO):
        # With PYTHONUNBUFFERED nobody looks how much of a long text was taken: its rest is lost
        # without an error where the disk is full or the reader goes away.
        encoding = sys.stdout.encoding
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(sys.stdout.detach()),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=True,
        )


def _flush() -> int:
    """Send off what is left for stdout, which Python would fail to in its own words.

    Returns 0, or the exit code of what went wrong.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_answers()
        return EXIT_READER_GONE
    except OSError as error:
        _drop_answers()
        remark(f"{PROGRAM}: stdout could not be written: {error.strerror or error}")
        return EXIT_FAILED
    return 0


def _drop_answers() -> None:
    """What can't be written any more goes nowhere, so that Python's own end doesn't try again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _list_commands() -> int:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    remark("\n".join([f"usage: {PROGRAM} COMMAND (see {PROGRAM} --help)", *lines]))
    return EXIT_USAGE


def _call(args: argparse.Namespace) -> int:
    import asyncio

    from worker.answers import flush_answers
    from worker.bootstrap import build_deps
    from worker.resolving import ProgramLoop

    _check_texts(args)
    if not args.debug:
        _hush_libraries()

    async def call() -> int:
        async with build_deps(debug=args.debug, config=args.config) as deps:
            try:
                code: int = await _module(args.command).run(args, deps)
            except Exception as error:
                from worker.postgres.errors import translate

                ours = translate(error)
                if ours is None:
                    raise
                raise deps.explained(ours) from error
            flush_answers()
            return code

    with asyncio.Runner(loop_factory=ProgramLoop) as runner:
        return runner.run(call())


def _check_texts(args: argparse.Namespace) -> None:
    """Raises UsageError for what the shell may hand over and no command can use."""
    if args.config is not None and not args.config.strip():
        # an unset variable of the shell, and not the wish for no file
        raise UsageError(f"{CONFIG_OPTION} needs a file's name, and got an empty one")
    for name, value in vars(args).items():
        for text in value if isinstance(value, list) else [value]:
            if name not in FILES and isinstance(text, str) and not _is_text(text):
                shown = ascii(text[:DEFAULT_COLUMNS])
                raise UsageError(f"{shown} is no UTF-8: call it from a terminal that writes UTF-8")


def _is_text(text: str) -> bool:
    """Whether its bytes were UTF-8; Python keeps others as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hush_libraries() -> None:
    """Their remarks on a lost connection are tracebacks: what matters of it is our one line."""
    import logging  # asyncio has it already

    logging.getLogger().addHandler(logging.NullHandler())


def _module(name: str):  # type: ignore[no-untyped-def]  # noqa: ANN202  a module is no Protocol
    return importlib.import_module(f"worker.commands.{name.replace('-', '_')}")


def _report(error: Exception, *, of_tick: bool) -> int:
    from worker.postgres.errors import translate
    from worker.telemetry import redact, unmistaken

    ours = translate(error)
    if isinstance(ours, OutputError):
        _drop_answers()
    if ours is None:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        ours = QuotaWorkerError(f"internal error: {text} (run again with --debug)")
    text = redact(str(ours)) if ours.redacted else str(ours)
    remark(f"{PROGRAM}: {unmistaken(text) if of_tick else text}")
    return ours.exit_code


def _print_traceback() -> None:
    import traceback

    from worker.telemetry import redact

    sys.stderr.write(redact(traceback.format_exc()))
