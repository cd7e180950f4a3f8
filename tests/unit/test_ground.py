"""The ground floor: money, periods, backoff, errors, queries, assets."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import backoff, money, periods
from worker.assets import Assets
from worker.errors import AssetMissingError
from worker.postgres.queries import parse_queries

ZONES = [
    "UTC",
    "Asia/Shanghai",
    "Asia/Kolkata",
    "America/New_York",
    "America/Havana",  # clocks go forward at midnight
    "America/Asuncion",
    "Australia/Lord_Howe",  # half an hour
    "Africa/Cairo",
    "Asia/Beirut",
    "Pacific/Chatham",
    "Pacific/Apia",  # 2011-12-30 never was
    "America/Sao_Paulo",
]


class TestMoney:
    def test_a_million_tiny_amounts_are_exact(self) -> None:
        assert money.parse_nanos("0.0000015") * 1_000_000 == money.parse_nanos("1.5")

    @pytest.mark.parametrize("text", ["", "x", "NaN", "Infinity", "0.0000000001", "1e-10", "1,5"])
    def test_what_is_no_amount(self, text: str) -> None:
        with pytest.raises(ValueError, match="amount"):
            money.parse_nanos(text)

    @pytest.mark.parametrize(
        ("nanos", "text"),
        [
            (0, "0.00 USD"),
            (1_500, "0.0000015 USD"),
            (12_500_000_000, "12.50 USD"),
            (-1, "-0.000000001 USD"),
            (10**21, "1000000000000.00 USD"),
        ],
    )
    def test_shown_without_rounding(self, nanos: int, text: str) -> None:
        assert money.format_nanos(nanos, "USD") == text

    @given(st.integers(-(10**30), 10**30))
    def test_round_trips(self, nanos: int) -> None:
        cents, rest = money.split_nanos(nanos)
        assert 0 <= rest <= 9_999_999
        assert money.cents_to_nanos(cents) + rest == nanos
        if abs(nanos) < 10**27:  # Decimal's own 28 digits
            assert money.parse_nanos(str(money.nanos_to_decimal(nanos))) == nanos

    def test_decimal(self) -> None:
        assert money.nanos_to_decimal(8_603_760) == Decimal("0.00860376")


class TestPeriods:
    @pytest.mark.parametrize("name", ZONES)
    def test_days_tile_time(self, name: str) -> None:
        zone = periods.load_zone(name)
        day = date(2010, 1, 1)
        end = periods.day_start(day, zone)
        while day < date(2028, 1, 1):
            start, after = periods.day_bounds(day, zone)
            assert start == end, day
            end = after
            if start < after:
                assert periods.day_of(start, zone) == day
                # (a day that ends where the clock goes back holds its last instants twice)
                assert periods.day_of(start - timedelta(microseconds=1), zone) < day
            else:
                assert (name, day) == ("Pacific/Apia", date(2011, 12, 30))
            day += timedelta(days=1)

    def test_midnight_that_does_not_exist(self) -> None:
        havana = periods.load_zone("America/Havana")
        start = periods.day_start(date(2026, 3, 8), havana)
        assert start == datetime(2026, 3, 8, 5, tzinfo=UTC)
        assert start.astimezone(havana).hour == 1

    def test_months(self) -> None:
        shanghai = periods.load_zone("Asia/Shanghai")
        start, end = periods.month_bounds(date(2026, 10, 17), shanghai)
        assert start == datetime(2026, 9, 30, 16, tzinfo=UTC)
        assert end == datetime(2026, 10, 31, 16, tzinfo=UTC)
        assert periods.next_month(date(2027, 1, 31)) == date(2027, 2, 1)
        assert periods.next_month(date(2026, 12, 31)) == date(2027, 1, 1)
        assert periods.previous_month(date(2028, 2, 29)) == date(2028, 1, 1)
        assert periods.month_of(date(2028, 2, 29)) == date(2028, 2, 1)
        assert periods.parse_month("2026-10") == date(2026, 10, 1)

    @pytest.mark.parametrize("text", ["2026-13", "2026", "10/2026", ""])
    def test_no_month(self, text: str) -> None:
        with pytest.raises(ValueError, match="no month"):
            periods.parse_month(text)

    @pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "UTC+8x", "a\0b"])
    def test_no_zone(self, name: str) -> None:
        with pytest.raises(ValueError, match="no time zone"):
            periods.load_zone(name)

    def test_a_naive_moment_is_refused(self) -> None:
        with pytest.raises(ValueError, match="zone"):
            periods.day_of(datetime(2026, 1, 1), periods.load_zone("UTC"))  # noqa: DTZ001


async def test_days_begin_in_python_as_in_sql(conn) -> None:
    for name in ZONES:
        zone = periods.load_zone(name)
        await conn.execute("UPDATE quota_settings SET billing_zone = $1", name)
        rows = await conn.fetch(
            "SELECT d::date AS day, quota_day_start(d::date) AS start "
            "FROM generate_series('2024-01-01'::date, '2027-12-31', '1 day') d"
        )
        assert len(rows) == 1461
        wrong = [
            (r["day"], r["start"]) for r in rows if r["start"] != periods.day_start(r["day"], zone)
        ]
        assert wrong == [], name


class TestBackoff:
    def test_ladder(self) -> None:
        steps = (5.0, 30.0)
        assert [backoff.ladder_seconds(steps, n) for n in (1, 2, 3)] == [5.0, 30.0, None]
        with pytest.raises(ValueError, match="from 1"):
            backoff.ladder_seconds(steps, 0)

    def test_exponential(self) -> None:
        waits = [
            backoff.exponential_seconds(n, base_seconds=1, max_seconds=10)
            for n in (1, 2, 3, 4, 5, 10_000)
        ]
        assert waits == [1, 2, 4, 8, 10, 10]
        assert backoff.exponential_seconds(1, base_seconds=4, max_seconds=10, spread=0.25) == 3
        with pytest.raises(ValueError, match="spread"):
            backoff.exponential_seconds(1, base_seconds=4, max_seconds=10, spread=1)


class TestQueries:
    def test_splits_at_the_names(self) -> None:
        queries = parse_queries(
            "x", "-- head\n-- name: one\n-- why\nSELECT 1\n\n-- name: two\nSELECT 2\n"
        )
        assert list(queries) == ["one", "two"]
        assert queries["one"] == "-- why\nSELECT 1"
        with pytest.raises(AssetMissingError, match=r"sql/queries/x\.sql has no query 'three'"):
            queries["three"]

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "twice"),
            ("-- name: a\n-- name: b\nSELECT 1", "empty"),
        ],
    )
    def test_a_broken_file_is_refused(self, text: str, fault: str) -> None:
        with pytest.raises(AssetMissingError, match=fault):
            parse_queries("x", text)


def test_assets_say_what_is_missing(tmp_path: Path) -> None:
    assets = Assets(tmp_path)
    assert assets.sql_files("migrations") == []
    with pytest.raises(AssetMissingError, match="sql/nothing.sql is missing"):
        assets.read("sql/nothing.sql")
