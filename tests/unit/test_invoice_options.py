"""Options of `invoice compare` that can't be: refused before anything is opened."""

from __future__ import annotations

import pytest

from worker.bootstrap import build_deps
from worker.cli import build_parser
from worker.commands.invoice import run
from worker.errors import UsageError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--month", "2026-13"), "--month: '2026-13' is no month like 2026-10"),
        (("--zone", "Asia/Shanghia"), "did you mean Asia/Shanghai?"),
        (("--zone", "CST"), "'CST' is no time zone: say it like Asia/Shanghai or Etc/GMT-8"),
        (("--tolerance", "lots"), "--tolerance 'lots' is no percentage from 0 to 100"),
        (("--tolerance", "-1"), "--tolerance '-1' is no percentage from 0 to 100"),
        (("--tolerance", "nan"), "--tolerance 'nan' is no percentage from 0 to 100"),
        (("--currency", "dollars"), "--currency 'dollars' is no currency like USD"),
        (("--where", "Tag"), "--where 'Tag' is not like COLUMN=VALUE"),
        (("--model", "a"), "--model 'a' is not like NAME_IN_THE_INVOICE=NAME_IN_THE_LEDGER"),
        (("--only", ""), "--only needs a model's name, or a pattern such as gpt-*"),
        (("--columns", "Day"), "--columns Day is not like date=NAME,cost=NAME"),
        (("--top", "-1"), "--top needs a number of lines, or 0 for all"),
    ],
)
async def test_an_option_that_can_not_be(words: tuple[str, str], said: str) -> None:
    name, value = words
    given = ["invoice", "compare", "x.csv", "--month", "2026-10", f"{name}={value}"]
    args = build_parser("invoice").parse_args(given)
    async with build_deps(environ={}) as deps:
        with pytest.raises(UsageError) as refused:
            await run(args, deps)
    assert said in str(refused.value)
