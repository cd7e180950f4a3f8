"""The im-bot's program: arguments, limits, exit codes, and what is left running."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.conftest import SECRET
from contract.samples import department_facts, dimension, message, tenant_facts
from worker.assets import Assets
from worker.models import Delivery, FailureCause
from worker.notifiers.imbot import TEXT_MAX_BYTES, ImBotNotifier, safe_argument, split_text
from worker.rendering import Renderer

if TYPE_CHECKING:
    from contract.servers import ImBot


def notifier_of(imbot: ImBot, renderer: Renderer) -> ImBotNotifier:
    environ = {**os.environ, "POSTGRES_DSN": SECRET, "QUOTA_WORKER_FEISHU_SECRET": SECRET}
    return ImBotNotifier(renderer, (str(imbot.path),), "ops room", environ)


async def test_the_arguments_and_the_known_line(imbot: ImBot, renderer: Renderer) -> None:
    assert (await notifier_of(imbot, renderer).send(message(), 10)).delivered
    (call,) = imbot.calls()
    assert call["argv"][:4] == ["send", "--group", "ops room", "--text"]
    assert len(call["argv"]) == 5
    first = call["argv"][4].splitlines()[0]
    assert first == "[quota-warn] tenant-free at 82.0% completions / 41.0% cost"
    assert call["env"]["QUOTA_WORKER_MESSAGE_ID"] == "qw-0123456789abcdef"


async def test_exhausted_has_its_own_tag(imbot: ImBot, renderer: Renderer) -> None:
    facts = tenant_facts(severity="exhausted", threshold=100)
    assert (await notifier_of(imbot, renderer).send(message(facts), 10)).delivered
    assert imbot.texts()[0].startswith("[quota-exhausted] tenant-free at ")


REFUSED = dimension(
    "cost",
    period_kind="month",
    used=4_000_000_000,
    cap=10_000_000_000,
    pct=40.0,
    threshold=100,
    refused_at="2026-11-30T09:59:00+00:00",
)


@pytest.mark.parametrize("kind", ["tenant", "department"])
@pytest.mark.parametrize(
    ("locale", "words"),
    [("en", " refused a request that did not fit, at 40.0% cost, month"), ("zh-CN", "40.0%")],
)
async def test_a_refusal_below_the_cap_says_so(
    imbot: ImBot, renderer: Renderer, kind: str, locale: str, words: str
) -> None:
    make = tenant_facts if kind == "tenant" else department_facts
    facts = make("rnd", severity="exhausted", threshold=100, dimensions=[REFUSED])
    assert (await notifier_of(imbot, renderer).send(message(facts, locale=locale), 10)).delivered
    first, second, third = imbot.texts()[0].splitlines()[:3]
    assert first.startswith("[quota-exhausted] ")
    assert words in first
    assert "4.00 USD" in second
    assert "10.00 USD" in second
    assert "2026-11-30 09:59 UTC" in third


async def test_a_full_cap_beside_a_refusal_is_exhausted(imbot: ImBot, renderer: Renderer) -> None:
    full = dimension(used=50, pct=100.0, threshold=100)
    facts = tenant_facts(severity="exhausted", threshold=100, dimensions=[full, REFUSED])
    assert (await notifier_of(imbot, renderer).send(message(facts), 10)).delivered
    first = imbot.texts()[0].splitlines()[0]
    assert first == "[quota-exhausted] tenant-free at 100.0% completions / 40.0% cost, month"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"downgrade_from": None}, "from 90%: model small"),
        ({}, "from 90%: model small for large, huge"),
        ({"downgrade_model": None}, "from 98%: only requests of high priority pass"),
        (
            {"downgrade_pct": 98},
            "from 98%: only requests of high priority pass, with the model small for large, huge",
        ),
        (
            {"downgrade_model": None, "protect_pct": 100},
            "at 100% further requests are refused",
        ),
        ({"locale": "zh-CN"}, "达到 90% 后 large, huge 改用模型 small"),
        ({"locale": "zh-CN", "downgrade_model": None}, "达到 98% 后仅高优先级请求可通过"),
    ],
)
async def test_a_departments_warning_says_what_comes_next(
    imbot: ImBot, renderer: Renderer, changes: dict[str, Any], words: str
) -> None:
    told = dimension("tokens", period_kind="month", pct=82.0, threshold=75)
    changes = dict(changes)
    locale = changes.pop("locale", "en")
    facts = department_facts(severity="warning", tier="warning", dimensions=[told], **changes)
    assert (await notifier_of(imbot, renderer).send(message(facts, locale=locale), 10)).delivered
    (line,) = (ln for ln in imbot.texts()[0].splitlines() if ln.startswith(("callers", "调用方")))
    assert line.endswith(words)
    assert line[: -len(words)] in {"callers: nothing changes yet; ", "调用方:暂无变化;"}


async def test_a_warning_decided_by_an_older_version(imbot: ImBot, renderer: Renderer) -> None:
    facts = department_facts(severity="warning", tier="warning")
    del facts["downgrade_pct"], facts["protect_pct"]
    assert (await notifier_of(imbot, renderer).send(message(facts), 10)).delivered
    assert "callers: nothing changes yet\n" in imbot.texts()[0]


async def test_further_dimensions_follow_in_the_same_form(imbot: ImBot, renderer: Renderer) -> None:
    facts = tenant_facts()
    facts["dimensions"] += [
        facts["dimensions"][0] | {"dimension": "input_tokens", "pct": 80.5},
        facts["dimensions"][1] | {"period_kind": "month", "pct": 91.0},
    ]
    assert (await notifier_of(imbot, renderer).send(message(facts), 10)).delivered
    assert imbot.texts()[0].splitlines()[0] == (
        "[quota-warn] tenant-free at 82.0% completions / 41.0% cost / 80.5% input tokens / 91.0% cost, month"
    )


async def test_the_child_gets_none_of_our_secrets(imbot: ImBot, renderer: Renderer) -> None:
    assert (await notifier_of(imbot, renderer).send(message(), 10)).delivered
    assert SECRET not in repr(imbot.calls()[0]["env"])


@pytest.fixture
def plain_renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """Templates of its own that show a name and nothing else."""
    root = tmp_path_factory.mktemp("assets")
    folder = root / "templates" / "tenant-warn"
    folder.mkdir(parents=True)
    (folder / "im-bot.txt.j2").write_text("{{ alert.subject }}")
    return Renderer(Assets(root))


async def test_case_24_a_long_message_goes_out_whole(
    imbot: ImBot, plain_renderer: Renderer
) -> None:
    name = "额" * (131_072 // 3) + "xx"
    assert len(name.encode()) == 131_072
    answer = await notifier_of(imbot, plain_renderer).send(message(tenant_facts(name)), 20)
    assert answer.delivered, answer
    assert "".join(imbot.texts()) == name
    assert all(len(text.encode()) <= TEXT_MAX_BYTES for text in imbot.texts())


async def test_each_piece_has_an_id_of_its_own_the_same_at_a_retry(
    imbot: ImBot, plain_renderer: Renderer
) -> None:
    for _ in range(2):
        facts = tenant_facts("x" * (TEXT_MAX_BYTES + 1))
        answer = await notifier_of(imbot, plain_renderer).send(message(facts), 20)
        assert answer.delivered, answer
    ids = [call["env"]["QUOTA_WORKER_MESSAGE_ID"] for call in imbot.calls()]
    assert ids == ["qw-0123456789abcdef-1", "qw-0123456789abcdef-2"] * 2


async def test_case_24_a_nul_goes_out_as_a_sign(imbot: ImBot, plain_renderer: Renderer) -> None:
    answer = await notifier_of(imbot, plain_renderer).send(message(tenant_facts("a\0b")), 10)
    assert answer.delivered, answer
    assert imbot.texts() == ["a␀b"]


@pytest.mark.parametrize("name", ["-x", "--group", "--"])
async def test_case_24_a_leading_dash_is_no_option(
    imbot: ImBot, plain_renderer: Renderer, name: str
) -> None:
    answer = await notifier_of(imbot, plain_renderer).send(message(tenant_facts(name)), 10)
    assert answer.delivered, answer
    assert imbot.texts() == [f" {name}"]


def test_a_piece_that_begins_with_a_dash_is_safe_too() -> None:
    assert [safe_argument(piece) for piece in split_text("aaaa\n-b", 4)] == ["aaaa", " -b"]


@pytest.mark.parametrize("size", [1, 4, 7, 50])
def test_split_loses_nothing(size: int) -> None:
    text = "一二\n三 four\n\n" + "x" * 20 + "👧" * 3
    if size < 4:
        text = "abc\nd"
    pieces = split_text(text, size)
    assert all(len(piece.encode()) <= size for piece in pieces)
    assert "".join(pieces).replace("\n", "") == text.replace("\n", "")


@pytest.mark.parametrize(
    ("mode", "cause", "retryable"),
    [
        ("exit1", FailureCause.COMMAND_FAILED, True),
        ("exit2", FailureCause.COMMAND_FAILED, True),
        ("says-error", FailureCause.COMMAND_FAILED, True),
        ("exit126", FailureCause.COMMAND_MISSING, False),
        ("exit127", FailureCause.COMMAND_MISSING, False),
    ],
)
async def test_what_an_exit_means(
    imbot: ImBot,
    renderer: Renderer,
    mode: str,
    cause: FailureCause,
    retryable: bool,  # noqa: FBT001
) -> None:
    imbot.mode(mode)
    answer = await notifier_of(imbot, renderer).send(message(), 10)
    assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, retryable)
    assert "secret-on-stderr" not in answer.detail


async def test_a_program_that_floods_its_output_can_end(imbot: ImBot, renderer: Renderer) -> None:
    imbot.mode("floods")
    assert (await notifier_of(imbot, renderer).send(message(), 10)).delivered


async def test_a_child_that_lives_on_does_not_hold_the_message_up(
    imbot: ImBot, renderer: Renderer
) -> None:
    imbot.mode("leaves-a-child")
    answer = await notifier_of(imbot, renderer).send(message(), 10)
    assert answer.delivered, answer


async def test_no_descriptor_is_left_open(imbot: ImBot, renderer: Renderer) -> None:
    bot = notifier_of(imbot, renderer)
    await bot.send(message(), 5.0)
    before = open_descriptors()
    for mode in ("ok", "exit1", "hang", "gone"):
        if mode == "gone":
            imbot.path.unlink()
        else:
            imbot.mode(mode)
        await bot.send(message(), 1.0)
    await asyncio.sleep(0.1)
    assert open_descriptors() <= before


async def test_what_can_not_be_run_is_named_with_why(
    imbot: ImBot, renderer: Renderer, tmp_path: Path
) -> None:
    path, folder = imbot.path, str(imbot.path.parent)

    async def tried(program: str) -> Delivery:
        bot = ImBotNotifier(renderer, (program,), "ops", {"PATH": folder})
        answer = await bot.send(message(), 10)
        assert (answer.cause, answer.retryable) == (FailureCause.COMMAND_MISSING, False)
        return answer

    absent = await tried("imbott")
    assert absent.detail == "there is no program imbott on the PATH"
    assert absent.cure.startswith("install it, or set `command`")
    assert (await tried(f"{folder}/no\x1bne")).detail == f"there is no program {folder}/no␛ne"
    assert (await tried(str(tmp_path))).detail == f"{tmp_path} is a folder, no program"
    path.chmod(0o600)
    for program in (path.name, str(path)):
        closed = await tried(program)
        assert closed.detail == f"{path} may not be run"
        assert closed.cure == f"chmod +x {path}, as its owner"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o700)
    assert "not the interpreter that its first line names" in (await tried(str(path))).detail
    path.write_text("echo OK\n")
    bare = await ImBotNotifier(renderer, (str(path),), "ops", {}).send(message(), 10)
    assert bare.cause == FailureCause.COMMAND_FAILED
    assert bare.cure == f"give {path} a first line such as #!/bin/sh"


async def test_after_a_timeout_nothing_is_left_running(imbot: ImBot, renderer: Renderer) -> None:
    imbot.mode("hang")
    answer = await notifier_of(imbot, renderer).send(message(), 1.5)
    assert answer.cause == FailureCause.TIMEOUT
    (call,) = imbot.calls()
    for _ in range(50):
        if not alive(call["pid"]):
            return
        await asyncio.sleep(0.1)
    pytest.fail("the program still runs")


def alive(pid: int) -> bool:
    """Whether a process of this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
