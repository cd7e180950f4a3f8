"""Runs a command in this process, as the program's edge does: cheap, for tables of surroundings."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout

from acceptance.program import Finished
from worker import cli
from worker.bootstrap import build_deps
from worker.postgres.errors import translate


async def quota_worker_here(dsn: str | None, *words: str, **environ: str) -> Finished:
    """`quota-worker WORDS` without a process: its exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    kept = {"PATH": os.environ["PATH"]} | ({"POSTGRES_DSN": dsn} if dsn else {}) | environ
    with redirect_stdout(out), redirect_stderr(err):
        args = cli.build_parser(words[0]).parse_args(words)
        try:
            async with build_deps(environ=kept, config=args.config) as deps:
                try:
                    code = await cli._module(words[0]).run(args, deps)
                except Exception as error:
                    ours = translate(error)
                    raise deps.explained(ours) if ours else error from error
        except Exception as error:  # noqa: BLE001  the program's edge
            code = cli._report(error, of_tick=words[0] in cli.BOUNDED)
        out.flush()
    return Finished(code, out.buffer.getvalue().decode(), err.getvalue())
