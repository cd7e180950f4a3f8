"""E-mail: what is in a message, and for whom. The way to the server: test_mail_server.py."""

from __future__ import annotations

import email.policy
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from contract.mail_world import LIMIT_SECONDS, SENDER, TO, mail, notifying, reached, serving
from contract.samples import HOSTILE_NAMES, department_facts, tenant_facts
from contract.servers_mail import USER, Certificates
from worker.models import Digest, FailureCause
from worker.notifiers.mail_message import Envelope, Mail, mail_bytes
from worker.rendering import Renderer
from worker.untrusted import for_mail_subject, visible


class Skeleton(HTMLParser):
    """The tags with their attributes' names, and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, ...]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("!", data))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("security", ["starttls", "tls", "none"])
async def test_two_mails_over_one_connection_each_in_two_parts(
    certificates: Certificates, renderer: Renderer, security: str
) -> None:
    async with (
        serving(certificates, security=security) as server,
        notifying(renderer, reached(server)) as notifier,
    ):
        first = await notifier.send(mail(department_facts()), LIMIT_SECONDS)
        second = await notifier.send(
            mail(locale="zh-CN", dedupe_key="qf-" + "9" * 40, recipient="it+quota@b.example"),
            LIMIT_SECONDS,
        )
        assert first.delivered, first
        assert second.delivered, second
        assert (server.connections, server.tries) == (1, ["PLAIN"])
        one, other = server.received
    assert (one.sender, one.recipient, one.encrypted, one.user) == (
        SENDER,
        TO,
        security != "none",
        USER,
    )
    assert other.recipient == "it+quota@b.example"
    assert [part.get_content_type() for part in one.mail.walk()] == [
        "multipart/alternative",
        "text/plain",
        "text/html",
    ]
    assert one.mail["From"] == f"quota-worker <{SENDER}>"
    assert one.mail["To"] == TO
    assert one.mail["Date"] == "Mon, 30 Nov 2026 10:00:00 +0000"
    assert one.mail["Message-ID"] == "<qw-0123456789abcdef@example.com>"
    assert b"\r\nMessage-ID: <qf-" + b"9" * 40 + b"@example.com>\r\n" in other.raw
    assert one.mail["Auto-Submitted"] == "auto-generated"
    assert one.subject == "[quota-warn] department R&D (production) at 91.0% tokens, month"
    assert "for more budget ask money@example.com" in one.part("plain")
    assert "额度预警" in other.subject
    page = Skeleton(one.part("html"))
    for words in (
        "Department R&D",
        "9,100 / 10,000",
        "91.0%",
        "requests to large, huge get the model small",
        "crawler",
        "12.3456789",
        "87.9%",
        "quota-worker status rnd",
        "ask money@example.com",
        "2026-12-01 00:00 UTC",
    ):
        assert words in page.text
    assert 'lang="en"' in one.part("html")
    assert 'lang="zh-CN"' in other.part("html")
    assert "对调用方的影响" in other.part("html")


async def test_the_same_bytes_at_each_attempt_but_for_the_boundary(
    certificates: Certificates, renderer: Renderer
) -> None:
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        for attempt in (1, 2):
            assert (await notifier.send(mail(attempt=attempt), LIMIT_SECONDS)).delivered
        one, other = (re.sub(rb"={15}\d+==", b"", each.raw) for each in server.received)
    assert one == other


async def test_a_name_in_html_and_subject_is_shown_as_typed_and_does_nothing(
    certificates: Certificates, renderer: Renderer
) -> None:
    names = (
        *HOSTILE_NAMES,
        "=?utf-8?q?=0D=0ABcc:_a@b?=",
        "a\u2028Bcc: x@example.com",
        '"><script>x</script><p a="',
        "<!--",
    )
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        for name in ("tame", *names):
            facts = department_facts(
                name, department_name=name, downgrade_model=name, finance_emails=[name]
            )
            facts["top_apps"][0] |= {"app": name, "models": [name]}
            assert (await notifier.send(mail(facts), LIMIT_SECONDS)).delivered, name
        tame, *hostile = server.received
    for name, got in zip(names, hostile, strict=True):
        page = Skeleton(got.part("html"))
        assert page.tags == Skeleton(tame.part("html")).tags, name
        assert page.text.count(visible(name)) >= 5, name
        assert got.subject == tame.subject.replace("tame", for_mail_subject(name)), name
        assert sorted(got.mail.keys()) == sorted(tame.mail.keys()), name
        assert got.recipient == TO


async def test_long_names_and_odd_ids_break_no_header(
    certificates: Certificates, renderer: Renderer
) -> None:
    name = "研发效能与代码评审助手" * 20
    async with (
        serving(certificates) as server,
        notifying(renderer, reached(server), domain="a." * 60 + "example") as notifier,
    ):
        one = mail(tenant_facts(name), dedupe_key="x y<z>\r\nBcc: a@b")
        assert (await notifier.send(one, LIMIT_SECONDS)).delivered
        (got,) = server.received
    assert name in got.subject
    assert "Bcc" not in got.mail
    assert re.search(
        rb"\r\nMessage-ID: ?(?:\r\n )?<x-y-z---Bcc--a-b@(?:a\.){60}example>\r\n", got.raw
    )


async def test_a_digest_is_one_mail_and_one_that_is_too_long_goes_as_text(
    certificates: Certificates, renderer: Renderer
) -> None:
    many = [mail(tenant_facts(f"租户-{n}-" + "名" * 60), message_id=n) for n in range(400)]
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        fit = notifier.fit(many)
        assert 50 < fit < 400
        answer = await notifier.send_digest(Digest(tuple(many[:fit]), "qd-1"), LIMIT_SECONDS)
        assert answer.delivered, answer
        facts = department_facts()
        facts["top_apps"] *= 200
        assert (await notifier.send(mail(facts), LIMIT_SECONDS)).delivered
        digest, long = server.received
    assert digest.mail["Message-ID"] == "<qd-1@example.com>"
    assert digest.subject.startswith(f"[quota-digest] {fit} quota alerts")
    html, text = digest.part("html"), digest.part("plain")
    assert len(html.encode()) <= 80_000
    for n in range(fit):
        assert f"租户-{n}-" in html
        assert f"租户-{n}-" in text
    assert long.mail.get_content_type() == "text/plain"
    assert long.part("plain").count("crawler") == 200


@pytest.mark.parametrize(
    ("recipient", "cause"),
    [
        (None, FailureCause.NOT_CONFIGURED),
        ("a@x>\r\nRCPT TO:<e@x", FailureCause.RECIPIENT_REFUSED),
        ("a@x.example\r\nBcc: e@x.example", FailureCause.RECIPIENT_REFUSED),
        ("Ops <a@x.example>", FailureCause.RECIPIENT_REFUSED),
        ("a@x.example, b@x.example", FailureCause.RECIPIENT_REFUSED),
        ("用户@x.example", FailureCause.RECIPIENT_REFUSED),
        ("a@例子.example", FailureCause.RECIPIENT_REFUSED),
        ('"a b"@x.example', FailureCause.RECIPIENT_REFUSED),
        ("a\0@x.example", FailureCause.RECIPIENT_REFUSED),
        ("nobody", FailureCause.RECIPIENT_REFUSED),
        ("", FailureCause.RECIPIENT_REFUSED),
    ],
)
async def test_an_address_that_could_forge_never_reaches_the_server(
    certificates: Certificates, renderer: Renderer, recipient: str | None, cause: FailureCause
) -> None:
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        answer = await notifier.send(mail(recipient=recipient), LIMIT_SECONDS)
        assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, False)
        assert not recipient or recipient not in answer.detail
        assert server.connections == 0


async def test_facts_of_another_shape_are_not_sent(
    certificates: Certificates, renderer: Renderer
) -> None:
    async with serving(certificates) as server, notifying(renderer, reached(server)) as notifier:
        answer = await notifier.send(replace(mail(), facts="{}"), LIMIT_SECONDS)
        assert (answer.cause, server.connections) == (FailureCause.NOT_RENDERED, 0)


@pytest.mark.parametrize("words", ["four ", "四个字", "aaaaaaaaaa"])
def test_a_subject_of_any_length_is_read_as_it_was_written(words: str) -> None:
    for length in (*range(50, 100), 300, 1200):
        subject = ("[quota-report] " + words * 300)[:length].strip()
        raw = mail_bytes(
            Mail(subject, "text", "<p>text</p>"),
            Envelope(SENDER, TO, "example.com"),
            "key",
            datetime(2026, 11, 30, tzinfo=UTC),
        )
        assert email.message_from_bytes(raw, policy=email.policy.default)["Subject"] == subject
        assert max(len(line) for line in raw.split(b"\r\n")) <= 998
