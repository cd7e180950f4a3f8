"""The comparison with Alertmanager: what it needs, what its receiver counts, what its table says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import httpx

from bench.versus.receiver import Receiver
from bench.versus.run import Result
from bench.versus.table import table


def test_without_alertmanager_it_says_so_and_exits_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.versus"],
        env={**os.environ, "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "prometheus-alertmanager" in done.stderr
    assert done.stderr.count("\n") == 1


async def test_the_receiver_counts_what_it_took_and_refuses_every_third() -> None:
    def named(body: dict[str, Any]) -> str:
        return str(body["name"])

    receiver = Receiver(named, answer_seconds=0.0, refuse_every=3)
    await receiver.open()
    url = f"http://127.0.0.1:{receiver.port}/"
    async with httpx.AsyncClient(trust_env=False) as client:
        answers = [(await client.post(url, json={"name": name})).status_code for name in "aabbc"]
    await receiver.close()
    assert answers == [200, 200, 500, 200, 200]
    assert receiver.requests == 5
    assert receiver.taken == {"a": 2, "b": 1, "c": 1}
    async with httpx.AsyncClient(trust_env=False) as client:
        try:
            await client.post(url, json={"name": "d"})
        except httpx.ConnectError:
            return
        finally:
            await receiver.end()
    raise AssertionError("who is away answers")


async def test_what_a_killed_sender_had_sent_counts_as_taken() -> None:
    receiver = Receiver(lambda body: str(body["name"]), answer_seconds=0.2)
    await receiver.open()
    _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
    writer.write(b'POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n{"name":"a"}')
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.transport.abort()
    await asyncio.sleep(0.2)
    await receiver.end()
    assert receiver.taken == {"a": 1}


def test_the_table_shows_medians_and_where_rounds_differ() -> None:
    def one(last: float, doubled: int) -> Result:
        return Result("calm", "ticks", 0.5, 1.0, 2.0, last, 200, 0, 0, doubled, 200, 0, 51_200)

    text = table([one(3.0, 1), one(20.0, 0), one(12.0, 4)])
    row = text.splitlines()[2]
    assert row == "| no fault | ticks | 0.50 | 1.00 | 2.00 | 12 | 0 | 0 | 1 (0 to 4) | 200 | 50 |"
