"""What no configuration may do: hang or slow a tick, break the program, show a secret's name."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from unit.configuration_world import ENVIRON, OPS, SECRET, faults_of, read
from worker.configuration import load_delivery
from worker.configuration.addresses import url_fault
from worker.configuration.routing import _Taken
from worker.errors import ConfigurationError
from worker.settings import RouteRule

if TYPE_CHECKING:
    from pathlib import Path

MAILS = "".join(
    f'[channels.{name}]\nkind = "email"\nhost = "h"\nsender = "a@b.c"\nca_file = "{file}"\n'
    for name, file in (("a", "pipe"), ("b", "/dev/zero"), ("c", "huge"), ("d", "."))
)
# No request can be made of them, by the library that makes requests.
HOSTS = ["xn--", "\u2603.example", "a..b", "a" * 64, "999.1.1.1", "ex%61mple.com", "-a.b", "[v1.a]"]
HOSTS += ["xn--a.example", "1.2.3.\u0664"]
HOOKS = "".join(
    f'[channels.h{number}]\nkind = "webhook"\nurl = "https://{host}/{SECRET}"\n'
    for number, host in enumerate(HOSTS)
)
APP = (
    '[channels.app]\nkind = "feishu-app"\napp_id = "i"\napp_secret = { env = "PAGER_SECRET" }\n'
    'receive_id = "r"\nbase_url = "https://xn--/"\n'
)
TO_CONSOLE = '[default]\nchannels = ["console"]\n'
LONG = "1_000" * 1100
# By the name of the case: the file, and the beginnings of its faults, all of them, in order.
WRONG: dict[str, tuple[str, list[str]]] = {
    "files that are none": (
        MAILS + TO_CONSOLE,
        [
            "channels.a.ca_file names the file 'pipe', which is no plain file",
            "channels.b.ca_file names the file '/dev/zero', which is no plain file",
            "channels.c.ca_file names the file 'huge', which is larger than 1,048,576 bytes",
            "channels.d.ca_file names the file '.', which can't be read: Is a directory",
        ],
    ),
    "hosts": (
        HOOKS + APP + TO_CONSOLE,
        [f"channels.h{number}.url has a host's name that can't be" for number in range(len(HOSTS))]
        + ["channels.app.base_url has a host's name that can't be: copy it again"],
    ),
    "keys that may be secrets": (
        OPS + f'"sekret={SECRET}" = 1\n"{SECRET} {SECRET}" = 1\n"{SECRET}{"x" * 40}" = 1\n'
        f'[[routes]]\nchannels = ["ops"]\ntenant = "t"\n"a={SECRET}" = 1\n["b={SECRET}"]\n',
        [
            "a key of channels.ops is not known here: choose one of kind, url, secret, keyword",
            "a key of channels.ops is not known here: choose one of",
            "a key of channels.ops is not known here: choose one of",
            "a key of routes[1] is not known here: choose one of",
            "a key is not known here: choose one of channels, default, messages",
        ],
    ),
    "tables that may be secrets": (
        f'["b={SECRET}"]\n["b={SECRET}"]\n',
        ["line 2, column 24 Cannot declare a table twice: each table stands once"],
    ),
    "too many routes": (
        OPS + "[[routes]]\n" * 10_001,
        ["routes are 10,001: at most 10,000, put some together in lists"],
    ),
    "a long number": (
        f"{OPS}keyword = '''\n'''\nport = {LONG}\n",
        ["line 6 holds a number of more digits than any needs: shorten it"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_is_a_fault_with_its_place(tmp_path: Path, case: str) -> None:
    (tmp_path / "huge").write_text("x" * 1_048_577)
    os.mkfifo(tmp_path / "pipe")
    text, expected = WRONG[case]
    found = faults_of(tmp_path, text)
    assert len(found) == len(expected), found
    for fault, beginning in zip(found, expected, strict=True):
        assert fault.startswith(beginning), found


@pytest.mark.parametrize(
    "host",
    [
        "bücher.example",
        "xn--bcher-kva.example",
        "例え。jp",
        "a_b.c",
        "a.b.",
        "1.2.3.4",
        "[::1]",
        "1.2.3",
        "h",
    ],
)
def test_a_host_that_a_request_can_be_made_to_is_none(host: str) -> None:
    import httpx

    url = f"https://{host}/"
    assert url_fault(url) is None
    assert httpx.Request("POST", url).url.host


@pytest.mark.parametrize("port", ["9" * 5000, "9" * 21, "-1", "5e2", "70000", "\u00b2"])
def test_a_variable_that_is_no_number_is_told_by_name(port: str) -> None:
    mail = {"QUOTA_WORKER_SMTP_HOST": "h", "QUOTA_WORKER_SMTP_SENDER": "a@b.c"}
    with pytest.raises(ConfigurationError) as caught:
        load_delivery(mail | {"QUOTA_WORKER_SMTP_PORT": port})
    assert str(caught.value).startswith("QUOTA_WORKER_SMTP_PORT is ")
    assert len(str(caught.value)) < 100


def test_an_empty_name_is_no_wish_for_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        load_delivery({}, "")
    (tmp_path / "quota-worker.toml").write_text(OPS)
    unset = {"QUOTA_WORKER_CONFIG": " "}
    assert load_delivery(unset).source is None
    assert load_delivery(ENVIRON | unset, str(tmp_path / "quota-worker.toml")).source is not None


def test_ten_thousand_routes_cost_no_more_than_their_lines(tmp_path: Path) -> None:
    """Each is compared with whatever stands before it, be it of one tenant or of many."""
    routes = "".join(
        f'[[routes]]\ntenant = "t"\ndepartment = ["d{number}", "e"]\nchannels = ["ops"]\n'
        for number in range(9_998)
    )
    begun = time.process_time()
    assert len(read(tmp_path, OPS + routes).rules) == 9_998
    covered = '[[routes]]\ntenant = "t"\ndepartment = "d9000"\nchannels = ["ops"]\n'
    found = faults_of(tmp_path, OPS + routes + covered * 2)
    # in seconds; pair by pair it was 180
    assert time.process_time() - begun < 20
    assert [fault.partition(" stands")[0] for fault in found] == [
        f"routes[{place}].channels are never used: routes[9001]" for place in (9_999, 10_000)
    ]


def test_routes_are_judged_as_pair_by_pair() -> None:
    """Against the definition: whatever the later one matches, the earlier one does, too."""
    chance = random.Random(5)  # noqa: S311  no secret
    words = {"tenants": "abc", "departments": "xy", "environments": "pt", "severities": "wde"}
    outcomes = set()
    for _ in range(300):
        taken, rules = _Taken(), list[RouteRule]()
        for place in range(1, 13):
            named = {
                name: tuple(chance.sample(letters, chance.randint(1, len(letters))))
                for name, letters in words.items()
                if chance.random() < 0.5
            }
            rule = RouteRule(**named)
            first = next(
                (at for at, earlier in enumerate(rules, start=1) if _covers(earlier, rule)), None
            )
            assert taken.by(rule) == first
            outcomes.add(first)
            rules.append(rule)
            taken.add(place, rule)
    assert len(outcomes) > 5


def _covers(earlier: RouteRule, later: RouteRule) -> bool:
    return all(
        not wide or (narrow and set(narrow) <= set(wide))
        for wide, narrow in zip(earlier.conditions.values(), later.conditions.values(), strict=True)
    )
