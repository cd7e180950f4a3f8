"""quota_watch: an app whose keys run away together, and none of them alone."""

from __future__ import annotations

import pytest

from requests_world import put

from sql.calls import NOON
from sql.watching import HOUR, MINUTE, Connection, note, told, watch


async def loop_of_keys(conn: Connection, keys: int, each: int = 5) -> None:
    """A loop that takes another key every few requests, in the last ten minutes."""
    for key in range(keys):
        await put(conn, each, at=NOON - (key % 9 + 1) * MINUTE, key=f"k-{key}")


async def test_a_loop_across_many_keys_of_an_app_is_told_as_one(conn: Connection) -> None:
    await loop_of_keys(conn, 19)
    assert await watch(conn) == (0, 0, 0)
    await put(conn, 5, at=NOON - MINUTE, key="")
    assert await watch(conn) == (0, 1, 1)
    (one,) = (await told(conn))[0]["findings"]
    assert (one["rule"], one["app"], one["api_key"], one["key_count"]) == (
        "tight_loop",
        "bot",
        "",
        20,
    )
    assert (one["requests"], one["recent"], one["same"]) == (100, 100, 100)
    assert await watch(conn, NOON + MINUTE) == (0, 0, 0)
    assert (await watch(conn, min_requests=5))[1] == 20  # a key of it still may be


async def test_an_app_whose_key_is_told_is_not_told_besides(conn: Connection) -> None:
    await put(conn, 100, at=NOON - MINUTE, key="k-0")
    await put(conn, 20, at=NOON - MINUTE, key="k-1")
    assert await watch(conn) == (0, 1, 1)
    (one,) = (await told(conn))[0]["findings"]
    assert (one["api_key"], one["requests"], "key_count" in one) == ("k-0", 100, False)
    assert await watch(conn, NOON + MINUTE) == (0, 0, 0)


@pytest.mark.parametrize(
    ("each", "yesterday", "expected"),
    [
        pytest.param(9, 0, 0, id="less than ten times"),
        pytest.param(10, 0, 1, id="ten times"),
        pytest.param(10, 21, 0, id="as yesterday at this hour"),
    ],
)
async def test_an_apps_usual_is_that_of_all_its_keys(
    conn: Connection, each: int, yesterday: int, expected: int
) -> None:
    """Two keys of ten an hour each are an app of twenty: ten times that is 200."""
    for back in range(3, 60):
        if back % 24 != 1:  # at this hour only yesterday, if at all
            for key in ("old-0", "old-1"):
                await put(conn, 10, at=NOON - back * HOUR + MINUTE, key=key)
    await put(conn, yesterday, at=NOON - 25 * HOUR + MINUTE, key="old-0")
    await note(conn)
    for key in range(20):
        await put(conn, each, at=NOON - 15 * MINUTE, key=f"k-{key}")
    await put(conn, 1, at=NOON - MINUTE, key="k-0", usage=(0, 0))
    assert (await watch(conn))[1] == expected
