"""`quota-worker alerts` on a real database: the history, and one message in full."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acceptance.alerts_world import configured, line_of, listed, put, quiet_hours, sending
from acceptance.program import quota_worker
from worker import cli
from worker.assets import Assets
from worker.periods import load_zone
from worker.postgres.queries import load_queries
from worker.samples import sample_facts

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

HOSTILE = "evil\x1b[2J\n  9  ops  sent\u202e"
URL = "https://open.feishu.cn/open-apis/bot/v2/hook/token-of-a-bot"


def failing_channels(log: str) -> list[tuple[str, str, int]]:
    """The warnings among a tick's log lines."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [
        (line["channel"], line["cause"], line["messages"])
        for line in lines
        if (line["event"], line["level"]) == ("channel failing", "warning")
    ]


async def test_nothing_was_told(dsn: str) -> None:
    done = await quota_worker(dsn, "alerts")
    assert (done.code, done.out, done.err) == (0, "no alerts\n", "")
    assert (await listed(dsn))["alerts"] == []
    for arguments in (("7",), ("retry", "7")):
        done = await quota_worker(dsn, "alerts", *arguments)
        assert (done.code, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert "quota-worker alerts lists them" in line


async def test_from_the_decision_to_the_history(dsn: str, conn: Connection, tmp_path: Path) -> None:
    """Real crossings, decided and delivered by a real tick, one of its channels without a command."""
    await conn.execute(
        "UPDATE quota_settings SET billing_zone = 'Asia/Shanghai';"
        "INSERT INTO tenant_limits (tenant_id, daily_completions) VALUES ('first', 5), ('second', 1)"
    )
    for number in range(4):
        await conn.execute("SELECT quota_reserve('first', $1, 1, 1, 1)", f"r{number}")
    imbot = {
        "QUOTA_WORKER_IMBOT_GROUP": "g",
        "QUOTA_WORKER_IMBOT_COMMAND": str(tmp_path / "missing"),
    }
    done = await quota_worker(dsn, "tick", **imbot)
    assert done.code == 0
    # cron's log says which channel is broken, and how
    assert failing_channels(done.err) == [("im-bot", "command_missing", 1)]
    document = await listed(dsn)
    (alert,) = document["alerts"]
    assert (alert["subject"], alert["severity"]) == ("first", "warning")
    (crossed,) = alert["crossed"]
    assert (crossed["dimension"], crossed["threshold"], crossed["pct"]) == ("completions", 80, 80)
    dead, fallback = alert["deliveries"]
    assert (dead["channel"], dead["state"], dead["cause"]) == ("im-bot", "dead", "command_missing")
    assert (fallback["channel"], fallback["state"]) == ("console", "sent")
    assert fallback["fallback_of"] == dead["id"]
    assert document["unacknowledged"] == 1
    assert document["given_up"][0]["told_elsewhere"] is True

    await conn.execute("SELECT quota_reserve('second', 'r', 1, 1, 1)")
    assert (await quota_worker(dsn, "tick")).code == 0
    text = (await quota_worker(dsn, "alerts")).out
    summary, table = text.split("\n\n")
    assert summary.startswith("1 message was given up and not acknowledged:\n")
    assert "the command was not found or may not be run; told on another channel" in summary
    heads = [line for line in table.splitlines() if not line.startswith("  ")]
    assert [head.split("  ")[1:] for head in heads] == [
        ["exhausted", "second: completions, day 100.0% (past 100%)"],
        ["warning", "first: completions, day 80.0% (past 80%)"],
    ]
    assert " Asia/Shanghai  " in heads[0]
    assert line_of(table, dead["id"]).endswith(f"told as {fallback['id']} on console")
    assert line_of(table, fallback["id"]).endswith(f"attempt 1; told here as {dead['id']} failed")

    shown = (await quota_worker(dsn, "alerts", str(dead["id"]))).out
    lines = [line.strip() for line in shown.splitlines()]
    assert "[quota-warn] first at 80.0% completions / 0.0% cost" in lines
    (crossing,) = [line for line in lines if line.startswith("completions, day ") and "80%" in line]
    assert crossing.split("  ")[0].endswith(crossed["period_start"])
    assert crossing.split()[3:8] == ["80%", "1", "4", "-", "5"]
    detail = json.loads((await quota_worker(dsn, "alerts", str(dead["id"]), "--json")).out)
    stored = await conn.fetchrow(
        "SELECT generation, state, used, cap FROM quota_warn_log WHERE subject = 'first'"
    )
    (one,) = detail["crossings"]
    assert {name: one[name] for name in stored.keys()} == dict(stored)  # noqa: SIM118  a Record's
    assert detail["facts"]["subject"] == "first"
    assert detail["text"] in "\n".join(line[2:] for line in shown.splitlines())

    # once its command is there, a retry sends it
    (tmp_path / "missing").write_text("#!/bin/sh\necho OK\n")
    (tmp_path / "missing").chmod(0o755)
    done = await quota_worker(dsn, "alerts", "retry", str(dead["id"]))
    assert (done.code, done.err) == (0, "")
    assert (await quota_worker(dsn, "tick", **imbot)).code == 0
    (one,) = (await listed(dsn, "--subject", "first"))["alerts"]
    assert [row["state"] for row in one["deliveries"]] == ["sent", "sent"]
    assert one["deliveries"][0]["attempts"] == 1


async def test_each_state_in_words(dsn: str, conn: Connection, tmp_path: Path) -> None:
    env = configured(tmp_path)
    now: datetime = await conn.fetchval("SELECT clock_timestamp()")
    later = {"next_attempt_at": now + timedelta(hours=1)}
    failed = {"attempts": 2, "last_failure": "timeout", "failed_at": now}
    expected = {
        await put(conn, "a", ago=9, state="sent", attempts=2): ", attempt 2",
        await put(conn, "b", ago=8): "ops waits for the next tick",
        await put(conn, "c", ago=7, **failed, **later): ", no answer in time",
        await sending(conn, "d", 60, ago=6): "ops being sent now, attempt 1",
        await sending(
            conn, "e", -60, ago=5
        ): "as its worker stopped: to be sent again with the next tick",
        await put(conn, "f", ago=4, state="dead", attempts=1, last_failure="bot_removed"): (
            "; told nowhere else"
        ),
        await put(conn, "g", ago=3, state="superseded", superseded_by="h", ended_at=now): (
            "tells a higher threshold"
        ),
        await put(
            conn, "h", ago=2, state="stale", digest_only=True
        ): "ops waits for the next digest",
        await put(conn, "i", ago=1, channel="mail", recipient="Ops <a@example.com>"): (
            "mail Ops <a@example.com> waits for the next tick"
        ),
    }
    sent = {"state": "sent", "attempts": 1, "request_key": "qd-1"}
    for number in range(3):
        expected[await put(conn, f"m{number}", **sent)] = " in a digest, attempt 1"
    text = (await quota_worker(dsn, "alerts", **env)).out
    for outbox_id, words in expected.items():
        assert line_of(text, outbox_id).endswith(words), (outbox_id, words, text)
    last = max(expected)
    one = (await quota_worker(dsn, "alerts", str(last))).out
    assert line_of(one, last).endswith(" in a digest of 3, attempt 1")
    assert "NOT TOLD ELSEWHERE" in text.split("\n\n")[0]
    assert "waits until " in next(line for line in text.splitlines() if "no answer in time" in line)
    document = await listed(dsn)
    assert (len(document["alerts"]), document["more"]) == (12, False)
    decided = [datetime.fromisoformat(alert["decided_at"]) for alert in document["alerts"]]
    assert decided == sorted(decided, reverse=True)


async def test_the_list_is_cut_by_time_subject_state_and_number(dsn: str, conn: Connection) -> None:
    await put(conn, "old", ago=3 * 86_400, subject="acme", state="sent")
    await put(conn, "mid", ago=7_000, subject="部门", state="sent")
    await put(conn, "new", ago=60, subject="acme")
    # of one alert all messages are shown, whichever fits
    await put(conn, "new", ago=60, subject="acme", channel="chat", state="sent")

    async def found(*arguments: str) -> list[tuple[str, int]]:
        document = await listed(dsn, *arguments)
        return [(one["subject"], len(one["deliveries"])) for one in document["alerts"]]

    assert await found() == [("acme", 2), ("部门", 1), ("acme", 1)]
    assert await found("--since", "2h") == [("acme", 2), ("部门", 1)]
    assert await found("--since", "90m", "--subject", "部门") == []
    assert await found("--since", "2000-01-01", "--state", "pending") == [("acme", 2)]
    assert await found("--subject", "acme", "--limit", "1") == [("acme", 2)]
    text = (await quota_worker(dsn, "alerts", "--limit", "1")).out
    assert text.endswith("… and more: --limit 2, or 0 for all\n")
    assert (await listed(dsn, "--limit", "2"))["more"] is True
    assert (await listed(dsn, "--limit", "3"))["more"] is False
    assert await found("--limit", "0") == await found("--limit", "3")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x7"], "x7 is no message's id: retry, ack, or a number"),
        (["rety", "10"], "rety is no message's id: did you mean retry?"),
        (["ack", "retry"], "retry is no message's id: a number that quota-worker alerts shows is"),
        (["1", "2"], "one message at a time"),
        (["retry"], "retry needs the ids of messages"),
        (["ack", "0"], "0 is no message's id"),
        (["ack", "9223372036854775808"], "is no message's id"),
        (["ack", "1", "--by", " "], "--by is empty"),
        (["--note", "x"], "--note goes with quota-worker alerts ack ID … alone"),
        (["7", "--since", "2h"], "--since goes with the list alone"),
        (["--since", "soon"], "--since soon is no time: write 90m, 2h, 3d,"),
        (["--since", "999999w"], "--since 999999w is no time"),
        (["--state", "gone"], "choose pending, sending, sent, dead, superseded or stale"),
        (["--limit", "-1"], "--limit needs a number of alerts"),
    ],
)
def test_wrong_words_are_refused_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a database is asked: none is there."""
    assert cli.run(["alerts", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert says in line


async def test_names_and_notes_do_nothing_to_a_terminal(dsn: str, conn: Connection) -> None:
    one = await put(conn, "a", subject=HOSTILE, channel="ops\x1b[1m", recipient="x\n9@example.com")
    dead = await put(
        conn, "b", subject=HOSTILE, state="dead", last_failure="rejected", last_detail="\x1bc"
    )
    await conn.execute("SELECT quota_outbox_ack($1, $2, $3)", [one], "bob\x07", "fixed\n\x1b[2J")
    for arguments in ((), (str(one),), (str(dead),)):
        text = (await quota_worker(dsn, "alerts", *arguments)).out
        assert all(line.isprintable() for line in text.splitlines()), text
        assert "evil␛[2J␊  9  ops  sent\\u202e" in text
        assert not [line for line in text.splitlines() if line.startswith("  9  ops")]
    assert "withdrawn" in (await quota_worker(dsn, "alerts")).out
    assert (await quota_worker(dsn, "alerts", "--subject", HOSTILE)).out.count("evil") == 3


async def test_no_address_of_a_bot_is_shown(dsn: str, conn: Connection) -> None:
    one = await put(conn, "a", channel="feishu-webhook")
    for arguments in ([], [str(one)], ["--json"], [str(one), "--json"], ["retry", str(one)]):
        done = await quota_worker(dsn, "alerts", *arguments, QUOTA_WORKER_FEISHU_WEBHOOK=URL)
        assert done.code == 0, done
        assert "token-of-a-bot" not in done.out + done.err


async def test_quiet_hours_are_named_with_their_end(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """In their own zone, and a retry says so, too; what is full doesn't wait, nor what is due later."""
    quiet, ends = await quiet_hours(conn, "Asia/Tokyo")
    env = configured(tmp_path, quiet)
    over = f"the quiet hours end at {ends} Asia/Tokyo"
    later = await conn.fetchval("SELECT now() + interval '3 h'")
    warning = await put(conn, "a")
    full = await put(conn, "b", samples="exhausted")
    after = await put(conn, "c", next_attempt_at=later)
    dead = await put(conn, "d", state="dead", attempts=1, last_failure="timeout")
    text = (await quota_worker(dsn, "alerts", **env)).out
    assert line_of(text, warning).endswith(f"ops waits until {over}")
    assert line_of(text, full).endswith("ops waits for the next tick")
    assert over not in line_of(text, after)
    assert over in (await quota_worker(dsn, "alerts", str(warning), **env)).out
    ids = map(str, (warning, full, dead))
    done = await quota_worker(dsn, "alerts", "retry", *ids, **env)
    when = f"after the quiet hours, which end at {ends} Asia/Tokyo"
    assert done.out.splitlines() == [
        f"{warning} is due now, and sent {when}",
        f"{full} is due now, and sent with the next tick",
        f"{dead} will be sent again {when}; its attempts are counted anew",
    ]
    document = json.loads((await quota_worker(dsn, "alerts", "--json", **env)).out)
    until = datetime.fromisoformat(document["quiet_until"])
    assert until.astimezone(load_zone("Asia/Tokyo")).strftime("%H:%M") == ends
    assert timedelta(hours=1, minutes=58) < until - datetime.fromisoformat(document["at"])
    assert until - datetime.fromisoformat(document["at"]) <= timedelta(hours=2)
    assert (await listed(dsn))["quiet_until"] is None


@pytest.mark.parametrize(
    ("at", "begins", "ends", "until"),
    [
        ("2026-11-30T23:30", "22:00", "08:00", "2026-12-01T08:00"),
        ("2026-11-30T03:00", "22:00", "08:00", "2026-11-30T08:00"),
        ("2026-11-30T08:00", "22:00", "08:00", None),
        ("2026-11-30T12:00", "22:00", "08:00", None),
        ("2026-11-30T12:30", "12:00", "13:00", "2026-11-30T13:00"),
        ("2026-11-30T13:00", "12:00", "13:00", None),
    ],
)
async def test_the_end_of_the_quiet_hours(
    conn: Connection, at: str, begins: str, ends: str, until: str | None
) -> None:
    """The query as it is, at a time of our choice."""
    query = load_queries(Assets(), "alerts")["alerts_clock"]
    assert query.count("clock_timestamp()") == 1
    zone = "America/New_York"
    moment = query.replace("clock_timestamp()", f"timestamp '{at}' AT TIME ZONE '{zone}'")
    row = await conn.fetchrow(moment, json.dumps({"from": begins, "to": ends, "zone": zone}))
    found = row["quiet_until"]
    local = found and found.astimezone(load_zone(zone)).strftime("%Y-%m-%dT%H:%M")
    assert (local, row["quiet_zone"]) == (until, zone)


async def test_a_channel_that_nobody_configured_is_named_with_what_comes_of_it(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    """What the list says is what the tick then does: nothing yet, and the fallback after an hour."""
    fresh = await put(conn, "a", channel="renamed", ago=600)
    old = await put(conn, "b", channel="renamed", ago=3_500)
    line = await put(conn, "c", channel="renamed", state="stale", digest_only=True)
    env = configured(tmp_path)
    text = (await quota_worker(dsn, "alerts", **env)).out
    nobody = "no channel of that name is configured here"
    since = await conn.fetchval(
        "SELECT to_char(created_at + interval '1 h', 'HH24:MI:SS') FROM quota_outbox"
        " WHERE outbox_id = $1",
        fresh,
    )
    told = line_of(text, fresh)
    assert told.startswith(f"{fresh} renamed {nobody}: told on the fallback from ")
    assert told.endswith(f"{since} on")
    assert line_of(text, line).endswith(f"waits for the next digest; {nobody}")
    assert nobody in (await quota_worker(dsn, "alerts", str(fresh), **env)).out
    done = await quota_worker(dsn, "alerts", "retry", str(fresh), **env)
    assert done.out.startswith(f"{fresh} is due now, and sent on the fallback from ")
    await conn.execute(
        "UPDATE quota_outbox SET created_at = created_at - interval '2 min' WHERE outbox_id = $1",
        old,
    )
    text = (await quota_worker(dsn, "alerts", **env)).out
    assert line_of(text, old).endswith(f"{nobody}: told on the fallback with the next tick")
    assert (await quota_worker(dsn, "tick")).code == 0
    states = dict(await conn.fetch("SELECT outbox_id, state FROM quota_outbox"))
    assert (states[fresh], states[old]) == ("pending", "dead")


async def test_one_fallback_tells_for_all_channels_of_its_alert(dsn: str, conn: Connection) -> None:
    gone = {"state": "dead", "attempts": 1, "last_failure": "bot_removed"}
    dead = [await put(conn, "a", channel=name, **gone) for name in ("chat", "ops")]
    alone = await put(conn, "b", **gone)
    told = await put(conn, "a", channel="mail", state="sent", fallback_of=dead[0], attempts=1)
    text = (await quota_worker(dsn, "alerts")).out
    for one in dead:
        assert line_of(text, one).endswith(f"; told as {told} on mail")
    assert line_of(text, alone).endswith("; told nowhere else")
    told_elsewhere = {one["id"]: one["told_elsewhere"] for one in (await listed(dsn))["given_up"]}
    assert told_elsewhere == {dead[0]: True, dead[1]: True, alone: False}


async def test_what_is_available_again_was_exhausted(dsn: str, conn: Connection) -> None:
    facts = [sample_facts("available", "usual")[0] | {"subject": "acme"}]
    await put(conn, "a", kind="available", severity="available", facts=json.dumps(facts[0]))
    (head,) = [
        line for line in (await quota_worker(dsn, "alerts")).out.splitlines() if "acme" in line
    ]
    assert "  available  acme: " in head
    assert head.endswith("% (was exhausted)")
