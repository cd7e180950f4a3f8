"""[sources.NAME] and [reconcile]: what they are read as, and every fault with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unit.configuration_world import ENVIRON, EXAMPLE, SECRET, faults_of, read
from worker.configuration import load_delivery
from worker.json_paths import BrokenPathError, NotThereError, parse_path, shown_path, value_at
from worker.settings import AskingSettings

DSN = f"postgresql://reader:{SECRET}@db.example.com/gateway"
QUERY = "SELECT * FROM spend WHERE request_id = ANY($1::text[])"
SQL = f"""
[sources.log]
kind = "sql"
dsn = {{ env = "LOG_DSN" }}
query = "{QUERY}"
[sources.log.columns]
request_id = "request_id"
tenant_id = "tenant"
in_tokens = "i"
out_tokens = "o"
"""
HTTP = """
[sources.api]
kind = "http"
url = "https://api.example.com/{tenant_id}/usage/{request_id}?full=1"
[sources.api.headers]
Authorization = { env = "API_KEY" }
X-Team = "quota"
[sources.api.paths]
in_tokens = "data.usage.prompt_tokens"
out_tokens = "choices[0].out"
"""
VARIABLES = {"LOG_DSN": DSN, "API_KEY": f"Bearer {SECRET}"}


def test_without_sources_nothing_is_asked_or_waited_for(tmp_path: Path) -> None:
    assert read(tmp_path, "").asking == AskingSettings()
    assert load_delivery({"LOG_DSN": DSN}).asking.sources == ()


def test_sources_are_read_in_the_files_order(tmp_path: Path) -> None:
    limits = "[reconcile]\nwait_minutes = 60\nask_seconds = 5\n"
    delivery = read(tmp_path, HTTP + SQL + limits, **VARIABLES)
    asking = delivery.asking
    assert (asking.wait_seconds, asking.ask_seconds) == (3600, 5)
    api, log = asking.sources
    assert (api.name, api.kind, log.name, log.kind) == ("api", "http", "log", "sql")
    assert SECRET not in repr(asking)
    assert log.values == {
        "unique_ids": False,
        "currency": None,
        "time_limit_seconds": 10,
        "dsn": DSN,
        "query": QUERY,
        "tenants": False,
    }
    assert log.words == {
        "request_id": "request_id",
        "tenant_id": "tenant",
        "in_tokens": "i",
        "out_tokens": "o",
    }
    assert api.words == {
        "in_tokens": ("data", "usage", "prompt_tokens"),
        "out_tokens": ("choices", 0, "out"),
    }
    assert api.values["headers"] == {"Authorization": f"Bearer {SECRET}", "X-Team": "quota"}
    assert {name: api.values[name] for name in ("not_found", "requests_per_second", "at_once")} == {
        "not_found": (404,),
        "requests_per_second": 5,
        "at_once": 4,
    }
    assert delivery.secret_variables == ("API_KEY", "LOG_DSN")
    # several lines, the ledger's own database, ids that are unique
    text = SQL.replace('dsn = { env = "LOG_DSN" }', "unique_ids = true")
    text = text.replace(f'"{QUERY}"', f"'''\n{QUERY}\n  AND tenant = ANY($2)'''")
    (log,) = read(tmp_path, text.replace('tenant_id = "tenant"\n', "")).asking.sources
    assert (log.values["dsn"], log.values["tenants"]) == (None, True)
    assert log.values["query"].count("\n") == 1 + 1 - 1


# By what is changed: old, new, and the beginnings of the faults, all of them, in order.
WRONG: dict[str, tuple[str, str, list[str]]] = {
    "kind": (
        'kind = "sql"',
        'kind = "sqlite"',
        ["sources.log.kind is 'sqlite', which there is not: did you mean sql?"],
    ),
    "no kind": ('kind = "sql"\n', "", ["sources.log.kind is missing: one of sql, http"]),
    "key": (
        "query =",
        "qurey =",
        ["sources.log.qurey is not known here: did you mean query or currency?"],
    ),
    "literal dsn": (
        '{ env = "LOG_DSN" }',
        f'"{DSN}"',
        ["sources.log.dsn stands there itself: a secret is kept out"],
    ),
    "dsn": (
        'env = "LOG_DSN"',
        'env = "API_KEY"',
        ["sources.log.dsn leads to no address: one such as postgresql://"],
    ),
    "no parameter": ("$1", "''", ["sources.log.query asks for other things than $1"]),
    "parameters": (
        "$1::text[]",
        "$1) AND x = ANY($3",
        ["sources.log.query asks for other things than $1"],
    ),
    "control": (QUERY, "SELECT \\u0007 $1", ["sources.log.query holds a control character"]),
    "columns": (
        "[sources.log.columns]",
        "[sources.log.colums]",
        ["sources.log.colums is not known here: did you mean columns?"],
    ),
    "columns lacking": (
        'tenant_id = "tenant"\nin_tokens = "i"\n',
        'in_token = "i"\n',
        [
            "sources.log.columns.tenant_id is missing: the column of the tenant, or unique_ids = true",
            "sources.log.columns.in_token is not known here: did you mean in_tokens or out_tokens?",
        ],
    ),
    "two costs": (
        'out_tokens = "o"',
        'out_tokens = "o"\ncost = "c"\ncost_nanos = "n"',
        ["sources.log.columns.cost_nanos stands beside cost"],
    ),
    "limits": (
        'kind = "sql"',
        'kind = "sql"\ntime_limit_seconds = 31\ncurrency = "usd"\nunique_ids = "yes"',
        [
            "sources.log.unique_ids is a text: true or false",
            "sources.log.currency is 'usd': three capitals",
            "sources.log.time_limit_seconds is out of bounds: 1 to 30",
        ],
    ),
    "plain http": (
        "https://api",
        "http://api",
        ["sources.api.url is plain http to api.example.com: use https"],
    ),
    "host": (
        "https://api.",
        "https://{tenant_id}.",
        ["sources.api.url has a { } in its host's name, or a #"],
    ),
    "hole": (
        "{tenant_id}",
        "{tenant}",
        ["sources.api.url holds other { } than {tenant_id} and {request_id}"],
    ),
    "no request": ("{request_id}", "all", ["sources.api.url lacks {request_id}"]),
    "no tenant": (
        "{tenant_id}",
        "all",
        ["sources.api.url lacks {tenant_id}: two tenants may share"],
    ),
    "login": (
        "https://api",
        f"https://u:{SECRET}@api",
        ["sources.api.url holds a login before the host's name"],
    ),
    "literal header": (
        '{ env = "API_KEY" }',
        f'"{SECRET}"',
        ["sources.api.headers.Authorization stands there itself"],
    ),
    "header": ("X-Team", "Host", ["sources.api.headers.Host is no header that may be set"]),
    "path": (
        "choices[0].out",
        "choices[-1].out",
        ["sources.api.paths.out_tokens is no path of at most 20 steps"],
    ),
    "no figures": (
        'out_tokens = "choices[0].out"',
        "",
        ["sources.api.paths.out_tokens is missing: such as usage.prompt_tokens"],
    ),
    "numbers": (
        'kind = "http"',
        'kind = "http"\nnot_found = [404, 200]\nrequests_per_second = 0\nat_once = 17\nanswer_max_bytes = 999',
        [
            "sources.api.not_found is no list of numbers from 400 to 599",
            "sources.api.requests_per_second is out of bounds: 1 to 100",
            "sources.api.at_once is out of bounds: 1 to 16",
            "sources.api.answer_max_bytes is out of bounds: 1000 to 1048576",
        ],
    ),
    "reconcile": (
        "[sources.log]",
        "[reconcile]\nwait_minutes = 61\nask_second = 3\n[sources.log]",
        [
            "reconcile.wait_minutes is out of bounds: 0 to 60",
            "reconcile.ask_second is not known here: did you mean ask_seconds?",
        ],
    ),
    "name": (
        "[sources.log.columns]",
        '[sources." a"]\nkind = "sql"\n[sources.log.columns]',
        [
            'sources."␠a" is no name: 1 to 63 letters',
            'sources."␠a".query is missing: one such as "SELECT',
            'sources."␠a".columns is missing: name the query\'s columns',
        ],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_source_is_refused_with_every_fault(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, expected = WRONG[case]
    for name, value in VARIABLES.items():
        monkeypatch.setitem(ENVIRON, name, value)
    text = HTTP + SQL
    assert old in text
    found = faults_of(tmp_path, text.replace(old, new, 1))
    assert len(found) == len(expected), found
    for fault, beginning in zip(found, expected, strict=True):
        assert fault.startswith(beginning), found
        assert re.search(r": |, such as ", fault), fault


def test_there_are_ten_sources_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRON, "LOG_DSN", DSN)
    many = "".join(SQL.replace("sources.log", f"sources.s{n}") for n in range(11))
    assert faults_of(tmp_path, many) == ["sources.s10 is one too many: at most 10 sources"]


def test_the_examples_sources_load(tmp_path: Path) -> None:
    (tmp_path / "smtp-password").write_text(SECRET)
    asking = read(tmp_path, EXAMPLE.read_text(encoding="utf-8")).asking
    assert [source.kind for source in asking.sources] == ["sql", "http"]
    assert (asking.wait_seconds, asking.ask_seconds) == (900, 30)
    # what is said to be the default there is it
    for source in asking.sources:
        plain = {"sql": SQL, "http": HTTP}[source.kind]
        (other,) = read(tmp_path, plain, **VARIABLES).asking.sources
        for key in source.values.keys() - {"dsn", "query", "url", "headers", "currency"}:
            assert source.values[key] == other.values[key], key


def test_the_documentations_sources_load(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "sources.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```toml\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 3
    for snippet in snippets:
        assert read(tmp_path, snippet).asking.sources


def test_paths_lead_through_a_document() -> None:
    document = {"a": [{"b c": 1}, None], "0": {"x": 2}}
    assert value_at(document, parse_path('a[0]["b c"]')) == 1
    assert value_at(document, parse_path("a[1].b.c")) is None
    assert value_at(document, parse_path("0.x")) == 2
    for text in ("a[2]", "a.b", "a[0].b", "b", "[0]", "a[0][0]"):
        with pytest.raises(NotThereError):
            value_at(document, parse_path(text))
    for text in ("a..b", ".", "a[", "a[x]", "a[-1]", "a b", "x" + ".y" * 20):
        with pytest.raises(BrokenPathError):
            parse_path(text)
    assert shown_path(parse_path('a[0]["b c"].d')) == 'a[0]["b c"].d'
