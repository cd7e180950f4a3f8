"""What replay tells people."""

from __future__ import annotations

import pytest

from worker.commands.replay import summary_text
from worker.replay import ReplaySummary, Sums


@pytest.mark.parametrize(
    ("requests", "tenants", "first", "known", "waited"),
    [
        (1, 1, "1 request of 1 tenant in 0.5 s", "1 request known already", "repeated: 1 call"),
        (2, 1, "2 requests of 1 tenant in 0.5 s", "2 requests known already", "repeated: 2 calls"),
        (
            3000,
            200,
            "3,000 requests of 200 tenants in 0.5 s",
            "3,000 requests known already",
            "repeated: 3,000 calls",
        ),
    ],
)
def test_one_is_no_plural(requests: int, tenants: int, first: str, known: str, waited: str) -> None:
    asked = Sums(requests=requests)
    summary = ReplaySummary(
        reasons={"ok": requests},
        replayed=requests,
        lock_retries=requests,
        asked=asked,
        admitted=asked,
        settled=asked,
    )
    lines = summary_text(summary, tenants, 0.5).splitlines()
    assert lines[0] == first
    assert lines[-2].startswith(known)
    assert lines[-1].endswith(waited)
