"""Each planted bug must turn its test red, and that test must be green without it."""

from __future__ import annotations

import pytest

from mutations import planted_endings, planted_pools, planted_requests
from mutations.planting import Planted, is_red

BUGS = [*planted_requests.BUGS, *planted_endings.BUGS, *planted_pools.BUGS]


@pytest.mark.parametrize("planted", BUGS, ids=[one.name.replace(" ", "-") for one in BUGS])
async def test_a_planted_bug_turns_a_test_red(dsn: str, planted: Planted) -> None:
    assert await is_red(dsn, planted), f"{planted.killer} did not notice: {planted.name}"


def test_every_bug_has_a_name_of_its_own() -> None:
    names = [one.name for one in BUGS]
    assert len(names) == len(set(names))
