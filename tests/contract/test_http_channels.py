"""What holds for every channel over HTTP, with a server on loopback on the other side."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from contract.samples import message
from contract.servers_http import DROP, HttpServer, Request
from contract.servers_mail import Script
from contract.servers_webhook import WebhookServer
from worker.errors import ConfigurationError
from worker.models import FailureCause
from worker.notifiers.base import SendFailedError
from worker.notifiers.http import HttpClient, check_url
from worker.notifiers.webhook import WebhookNotifier

if TYPE_CHECKING:
    from contract.sides import HttpSide
    from worker.rendering import Renderer

RETRIED: list[tuple[int, Any, FailureCause]] = [
    (429, b"slow down", FailureCause.RATE_LIMITED),
    (500, b"", FailureCause.SERVER_ERROR),
    (502, b"<html>bad gateway</html>", FailureCause.SERVER_ERROR),
    (503, {"code": 0}, FailureCause.SERVER_ERROR),
    (504, b"x" * 10_000_000, FailureCause.SERVER_ERROR),
    # it was taken, perhaps
    (*DROP, FailureCause.UNKNOWN_ANSWER),
]


async def test_retried_under_the_same_id_until_it_is_taken(
    http_side: HttpSide, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = http_side.server
    server.answers = [(status, body) for status, body, _ in RETRIED] + server.answers
    shown = ""
    for _, _, cause in RETRIED:
        answer = await http_side.notifier.send(message(), 10)
        assert (answer.delivered, answer.cause, answer.retryable) == (False, cause, True)
        shown += answer.detail
    assert (await http_side.notifier.send(message(), 10)).delivered
    assert len(server.requests) == len(RETRIED) + 1
    bodies = {str(request.get("uuid") or request.get("id")) for request in server.requests}
    assert bodies in ({"qw-0123456789abcdef"}, {"None"})
    if bodies == {"None"}:
        ids = {headers["x-quota-worker-message-id"] for headers in server.headers}
        assert ids == {"qw-0123456789abcdef"}
    # the libraries log each request's address where they may
    for secret in http_side.secrets:
        assert secret not in shown + caplog.text


async def test_a_redirect_is_not_followed(http_side: HttpSide) -> None:
    server = http_side.server
    server.more_headers = f"Location: {server.url}\r\n"
    server.answers = [(307, {}), server.answers[0]]
    answer = await http_side.notifier.send(message(), 10)
    assert (answer.delivered, answer.retryable, answer.cause) == (False, False, "rejected")
    assert answer.detail == "HTTP 307: the address redirects, which is not followed"
    assert answer.cure.startswith("give the final address as the channel's `")
    assert len(server.requests) == 1


@pytest.mark.parametrize("host", ["xn--", "\u2603.example"])
async def test_a_host_that_no_request_can_be_made_to(renderer: Renderer, host: str) -> None:
    """The file's check refuses such a one; nothing is repeated for it where it was passed by."""
    hook = WebhookNotifier(renderer, f"https://{host}/")
    answer = await hook.send(message(), 10)
    await hook.close()
    assert (answer.retryable, answer.cause) == (False, FailureCause.REJECTED)
    assert answer.detail == "no request can be made for this address"


async def test_packed_answers_are_not_asked_for(http_side: HttpSide) -> None:
    assert (await http_side.notifier.send(message(), 10)).delivered
    assert {one["accept-encoding"] for one in http_side.server.headers} == {"identity"}


async def test_a_closed_notifier_opens_again(http_side: HttpSide) -> None:
    for number in range(2):
        sent = message(dedupe_key=f"qw-{number}")
        assert (await http_side.notifier.send(sent, 10)).delivered
        await http_side.notifier.close()
        await http_side.notifier.close()


async def test_an_unknown_certificate_is_no_connection(renderer: Renderer) -> None:
    encryption = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(encryption)
    server = WebhookServer()
    await server.start(encryption)
    hook = WebhookNotifier(renderer, server.url.replace("http:", "https:"))
    answer = await hook.send(message(), 10)
    await hook.close()
    await server.stop()
    assert (answer.cause, answer.retryable) == (FailureCause.UNREACHABLE, True)
    assert answer.detail == (
        "the server's certificate is not valid (verify code 20): its authority is not known here"
    )
    assert answer.cure.startswith("have this machine trust the authority")
    assert server.requests == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "the connection was closed without an answer"),
        (b"220 a mail server\r\n\r\n", "what came back is no HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            "the connection broke off before the whole answer had come",
        ),
    ],
)
async def test_what_is_no_answer_is_told_in_plain_words(said: bytes, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(on_loopback=True)
    with pytest.raises(SendFailedError) as failed:
        await client.post(f"http://127.0.0.1:{port}/t0ken", b"{}", {})
    await client.close()
    server.close()
    await server.wait_closed()
    assert (failed.value.cause, str(failed.value)) == (FailureCause.UNKNOWN_ANSWER, words)


async def test_why_there_is_no_connection_is_told_in_plain_words() -> None:
    other = Script("220 a mail server")
    urls = {
        f"https://127.0.0.1:{await other.start()}/": "no TLS: the other side talks something else",
        "https://no-such-host.invalid/": "no such host: its name could not be resolved",
        "http://127.0.0.1:1/": "connection refused: nothing listens there",
        "http://localhost:1/": "connection refused: nothing listens there",
    }
    for url, words in urls.items():
        client = HttpClient(on_loopback=True)
        with pytest.raises(SendFailedError) as failed:
            await client.post(url, b"{}", {})
        await client.close()
        assert failed.value.cause == FailureCause.UNREACHABLE
        assert str(failed.value).startswith(words)
        assert failed.value.cure.startswith("check the ")
    await other.stop()


class Proxy(HttpServer):
    """Refuses to connect, and remembers to whom it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def judge(self, request: Request) -> tuple[int, Any]:
        self.asked.append(request.line)
        return 403, b""


async def test_a_proxy_is_for_the_world_outside(
    http_side: HttpSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    await proxy.start()
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert (await http_side.notifier.send(message(), 10)).delivered
    assert proxy.asked == []
    client = HttpClient(on_loopback=False)
    with pytest.raises(SendFailedError) as refused:
        await client.post("https://relay.example/t0ken", b"{}", {})
    await client.close()
    await proxy.stop()
    assert refused.value.cause == FailureCause.UNREACHABLE
    assert proxy.asked == ["CONNECT relay.example:443 HTTP/1.1"]


@pytest.mark.parametrize("scheme", ["http", "socks5", "gopher"])
async def test_a_proxy_that_can_not_be_used_is_no_connection(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://127.0.0.1:9")
    client = HttpClient(on_loopback=False)
    with pytest.raises(SendFailedError) as refused:
        await client.post("https://relay.example/t0ken", b"{}", {})
    await client.close()
    assert refused.value.cause == FailureCause.UNREACHABLE
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://hooks.example/t0ken", "use https"),
        ("http://127.0.0.1.evil.example/t0ken", "use https"),
        ("ftp://hooks.example/t0ken", "no https address"),
        ("t0ken", "no https address"),
        ("https://", "no https address"),
        ("https://[::1/t0ken", "no web address"),
        ("https://host:t0ken/", "no web address"),
        ("https://hooks.example/t0ken\n", "line break"),
        ("https://hooks.example/t0 ken", "space"),
    ],
)
def test_an_unsafe_address_is_refused_without_showing_it(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        check_url(url, "channels.ops.url")
    assert "t0ken" not in str(refused.value)
    assert str(refused.value).startswith("channels.ops.url ")


def test_plain_http_stays_on_this_machine() -> None:
    assert not check_url("https://relay.example/hook/t0ken", "x")
    for host in ("127.0.0.1:80", "localhost", "[::1]:8080", "127.8.0.1"):
        assert check_url(f"http://{host}/hook", "x")
