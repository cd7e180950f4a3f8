"""Traces: what is read, and how a broken one is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import worker.traces
from worker.errors import UsageError
from worker.replay_trace import parse_trace, read_trace
from worker.traces.generate import lines

HEADER = b"timestamp,input_tokens,output_tokens\n"
GOOD = b"2026-11-30 09:00:00,10,20\n"


def test_reads_bom_crlf_seven_digit_fractions_and_the_other_names() -> None:
    data = (
        b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:17:03.9799600,4808,10\r\n"
        b"2023-11-16 18:17:03.2,0,0\r\n"
    )
    second, first = sorted(parse_trace(data, "t.csv"), key=lambda r: r.at, reverse=True)
    assert (first.at, first.in_tokens) == (datetime(2023, 11, 16, 18, 17, 3, 200000, UTC), 0)
    assert (second.at, second.in_tokens, second.out_tokens) == (
        datetime(2023, 11, 16, 18, 17, 3, 979960, UTC),
        4808,
        10,
    )


def test_reads_columns_in_any_order_with_offsets_and_ignores_others() -> None:
    data = (
        "Model,Tenant ID,output tokens,note,INPUT_TOKENS,Time,App\n"
        "大模型,租户,7,x,5,2026-11-30T09:00:00+08:00,web\n"
    ).encode()
    (request,) = parse_trace(data, "t.csv")
    assert request.at == datetime(2026, 11, 30, 1, 0, tzinfo=UTC)
    assert (request.in_tokens, request.out_tokens) == (5, 7)
    assert (request.tenant_id, request.model, request.app) == ("租户", "大模型", "web")


def test_sorts_by_time_and_keeps_the_order_of_equals() -> None:
    body = b"2026-11-30 09:00:02,1,1\n2026-11-30 09:00:01,2,1\n2026-11-30 09:00:01,3,1\n\n\n"
    assert [r.in_tokens for r in parse_trace(HEADER + body, "t.csv")] == [2, 3, 1]


@pytest.mark.parametrize(
    ("data", "place", "cure"),
    [
        (b"", "t.csv is empty", "header line is needed"),
        (HEADER, "t.csv", "no request"),
        (b"timestamp,input_tokens\n" + GOOD, "line 1", "output_tokens or GeneratedTokens"),
        (b"time,timestamp,in_tokens,out_tokens\n", "line 1", "keep one"),
        (HEADER + GOOD + b"2026-11-30 09:00:00,-1,2\n", "line 3, column 2", "whole number from 0"),
        (HEADER + b"2026-11-30 09:00:00,1.5,2\n", "line 2, column 2", "whole number from 0"),
        (HEADER + b"2026-11-30 09:00:00,ten,2\n", "column 2 ('input_tokens'): 'ten'", "number"),
        (HEADER + b"2026-11-30 09:00:00,1,\n", "line 2, column 3", "nothing is no token count"),
        (HEADER + b"2026-11-30 09:00:00,1,1000000000001\n", "column 3", "1000000000000"),
        (HEADER + "2026-11-30 09:00:00,٣,2\n".encode(), "line 2, column 2", "whole number"),
        (HEADER + b"yesterday,1,2\n", "line 2, column 1", "2026-11-30 18:15:46.680"),
        (HEADER + b"2026-02-30 09:00:00,1,2\n", "line 2, column 1", "is no time"),
        (HEADER + b"2026-11-30 09:00:00+99:00,1,2\n", "line 2, column 1", "is no time"),
        (HEADER + b",1,2\n", "line 2, column 1", "nothing is no time"),
        (HEADER + GOOD + b"2026-11-30 09:00:00,1\n", "line 3", "2 columns, the header has 3"),
        (HEADER + GOOD + b"2026-11-30 09:00:00,1,2,3\n", "line 3", "4 columns"),
        (HEADER + b"\n" + GOOD, "line 2", "empty line: remove it"),
        (HEADER + GOOD + b"\xff\xfe,1,2\n", "line 3", "save the file as UTF-8"),
        (HEADER + b'2026-11-30 09:00:00,"1"x,2\n', "line 2", "no valid CSV"),
        (HEADER + b"2026-11-30 09:00:00,\x00,2\n", "line 2", "column 2"),
        (b"tenant," + HEADER + b"," + GOOD, "column 1", "a tenant's name is needed"),
        (b"tenant," + HEADER + b"a\x1bb," + GOOD, "column 1", "no control characters"),
        (b"tenant," + HEADER + b"x" * 201 + b"," + GOOD, "column 1", "at most 200 characters"),
    ],
)
def test_refuses_a_broken_file_by_line_and_column(data: bytes, place: str, cure: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_trace(data, "t.csv")
    message = str(caught.value)
    assert place in message
    assert cure in message
    assert len(message.splitlines()) == 1
    assert message.isprintable()


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(UsageError, match="can't read .*No such file"):
        read_trace(Path("/nowhere/trace.csv"))


def test_the_shipped_trace_is_what_its_generator_makes() -> None:
    shipped = Path(worker.traces.__file__).with_name("tiny.csv").read_text(encoding="utf-8")
    assert shipped.splitlines() == lines()
    assert len(read_trace(Path(worker.traces.__file__).with_name("tiny.csv"))) == 306


@pytest.mark.parametrize(
    "time",
    [
        "1999-12-31 23:59:59.999",
        "2200-01-01 00:00:00",
        "0001-01-01 00:00:00+23:59",
        "9999-12-31 23:59:59-12:00",
        "2000-01-01 00:00:00+00:01",
    ],
)
def test_a_time_outside_two_centuries_is_a_broken_line(time: str) -> None:
    with pytest.raises(UsageError, match=r"t\.csv line 3, column 1 .*outside the years") as caught:
        parse_trace(HEADER + GOOD + f"{time},1,1\n".encode(), "t.csv")
    assert "\n" not in str(caught.value)


def test_the_edges_of_time_are_read() -> None:
    for time in ("2000-01-01 00:00:00", "2199-12-31 23:59:59.999999"):
        assert len(parse_trace(HEADER + f"{time},1,1\n".encode(), "t.csv")) == 1
