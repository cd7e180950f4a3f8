"""Many alerts for one bot: digests within its rate and the service's size, none missing."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from contract.conftest import SECRET
from contract.outbox_world import later, put, run_deliver, states

if TYPE_CHECKING:
    import asyncpg

    from contract.servers import FeishuServer

    Connection = asyncpg.Connection[Any]


async def test_300_alerts_for_one_bot(dsn: str, conn: Connection, feishu: FeishuServer) -> None:
    await put(conn, 300, channel="feishu-webhook")
    # a name of 190 letters of three bytes: some 25 lines fill a request
    await conn.execute(
        "UPDATE quota_outbox SET locale = 'zh-CN',"
        " facts = jsonb_set(facts, '{subject}', to_jsonb(repeat('甲', 190) || (facts ->> 'subject')))"
    )
    environ = {"QUOTA_WORKER_FEISHU_WEBHOOK": feishu.url, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
    runs = await asyncio.gather(*(run_deliver(dsn, environ, later(seconds=n)) for n in range(2)))
    assert await states(conn) == {"sent": 300}
    assert sum(run.sent for run in runs) == 300
    cards = [json.dumps(request, ensure_ascii=False) for request in feishu.requests]
    told = [name for card in cards for name in re.findall(r"甲(tenant&#45;\d+)", card)]
    assert len(told) == len(set(told)) == 300
    assert 10 <= len(cards) <= 20
    assert max(feishu.sizes) <= 20_000
    assert feishu.refused == []
    times = sorted(feishu.times)
    assert all(later_ - now >= 1.0 for now, later_ in zip(times, times[5:], strict=False))
