"""Variables that may be misspelt are told where somebody looks, and nowhere else."""

from __future__ import annotations

import asyncio
import os
import sys

from acceptance.program import PROCESS_SECONDS, environment, quota_worker

NOTE = "note: QUOTA_WORKER_FEISHU_SECRETT is not known: did you mean QUOTA_WORKER_FEISHU_SECRET?"
WRONG = {"QUOTA_WORKER_FEISHU_SECRETT": "s3cret"}


async def test_a_misspelt_variable_is_a_note_where_channels_are_looked_at() -> None:
    for arguments in (("list",), ("test", "console")):
        done = await quota_worker(None, "channel", *arguments, **WRONG)
        assert done.code == 0
        assert done.err.splitlines()[0] == NOTE
        assert "s3cret" not in done.out + done.err


async def test_a_tick_tells_a_terminal_and_no_log(dsn: str) -> None:
    assert (await quota_worker(dsn, "tick", **WRONG)).code == 0
    assert NOTE not in (await quota_worker(dsn, "tick", "--jobs", "soft_warn", **WRONG)).err
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "worker", "tick"), stderr=theirs, env=environment(dsn, **WRONG)
    )
    code = await asyncio.wait_for(process.wait(), PROCESS_SECONDS)
    os.close(theirs)  # so that reading nothing is an error and no wait
    told = os.read(ours, 4096).decode()
    os.close(ours)
    assert (code, told) == (0, f"{NOTE}\r\n")
