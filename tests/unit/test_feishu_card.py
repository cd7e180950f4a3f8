"""Any text becomes cards within the size, and every letter of it is in one of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.servers_card import card_fault, raw_text
from worker.notifiers.feishu_card import card_bodies, cards, worst
from worker.untrusted import for_card_markdown, for_card_title

LINES = st.lists(
    st.one_of(
        st.text(max_size=300),
        st.sampled_from(["1. one", "2. two", "label: text", "标签:文", "\\", '"' * 40, "<" * 900]),
    ).map(for_card_markdown),
    min_size=1,
    max_size=40,
)


@settings(max_examples=30, deadline=None)
@given(LINES, st.text(max_size=400).map(for_card_title), st.booleans(), st.integers(2_000, 6_000))
def test_cards_are_within_the_size_and_say_everything(
    lines: list[str],
    title: str,
    as_text: bool,  # noqa: FBT001
    max_bytes: int,
) -> None:
    made = cards(
        title=title,
        markdown="\n".join(lines),
        severity="warning",
        keyword="配额",
        max_bytes=max_bytes,
        as_text=as_text,
    )
    for card in made:
        assert card_fault(card) is None
        text = json.dumps(card, ensure_ascii=False)
        size = (
            len(json.dumps(text, ensure_ascii=False).encode()) - 2
            if as_text
            else len(text.encode())
        )
        assert size <= max_bytes
    said = "".join(raw_text(card) for card in made).replace("\n", "")
    assert said == "".join(line for line in lines if line.strip()).replace("\n", "")


def test_many_lines_go_into_several_cards_of_allowed_length() -> None:
    lines = [f"line {number}" for number in range(1000)]
    made = cards(title="t", markdown="\n".join(lines), severity="warning", max_bytes=1_000_000)
    assert len(made) == 7
    assert all(card_fault(card) is None for card in made)
    items = "\n".join(f"{number}. item" for number in range(1000))
    (one,) = cards(title="t", markdown=items, severity="warning", max_bytes=1_000_000)
    assert len(one["body"]["elements"]) == 3


def test_a_line_between_items_parts_two_lists() -> None:
    (card,) = cards(
        title="t", markdown="1. a\n2. b\ntext\n3. c\nnote", severity="warning", max_bytes=9_000
    )
    elements = card["body"]["elements"]
    assert [one.get("content") for one in elements] == [
        "1. a\n2. b",
        "text",
        "3. c",
        None,
        "<font color='grey'>note</font>",
    ]


def test_the_keyword_is_added_where_the_title_lacks_it() -> None:
    def elements(title: str) -> list[dict[str, Any]]:
        (body,) = card_bodies(
            title=title,
            markdown="text",
            severity="warning",
            keyword="quota",
            secret=None,
            timestamp_seconds=0,
        )
        found: list[dict[str, Any]] = json.loads(body)["card"]["body"]["elements"]
        return found

    assert [one["tag"] for one in elements("[quota-warn]")] == ["markdown"]
    assert [one["tag"] for one in elements("[budget]")] == ["markdown", "div"]


def test_a_digest_has_the_colour_of_its_worst() -> None:
    assert worst(["warning", "exhausted", "downgrade"]) == "exhausted"
    assert worst(["available", "warning"]) == "warning"
    assert worst(["of a later version", "available"]) == "available"
    assert worst(["of a later version"]) == "of a later version"
