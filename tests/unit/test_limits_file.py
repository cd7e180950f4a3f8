"""Files of limits: what is read, every fault by its line, what is compared, and how it is shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from worker.errors import UsageError
from worker.limits.comparing import Found, Surroundings, Verdict, judge
from worker.limits.reading import parse_limits, read_limits
from worker.limits.rows import Limits
from worker.limits.shape import BUDGET, DEPARTMENT, TENANT, Key, RefusedLimitsError
from worker.limits.showing import TOML_HEADER, diff_text, line_of, toml_table
from worker.limits.spans import parse_span, shown_span

HEAD = "format_version = 1\n"
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NOBODY = Surroundings((), (), ())
BUDGET_ROW = {
    "department_id": "d",
    "environment": "production",
    "monthly_tokens": None,
    "monthly_cost_cents": 100,
    "warn_pct": 75,
    "downgrade_pct": 90,
    "protect_pct": 98,
    "downgrade_from": None,
    "downgrade_model": None,
    "allowed_models": None,
}


def faults_of(text: str) -> list[str]:
    with pytest.raises(RefusedLimitsError) as caught:
        parse_limits((HEAD + text).encode(), "l.toml")
    told = str(caught.value)
    assert "nothing was changed" in told
    if "\n" not in told:
        return [told.removeprefix("l.toml: ").removesuffix("; nothing was changed")]
    return [line.strip() for line in told.splitlines()[1:]]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("daily_completion = 5", "is not known: did you mean daily_completions"),
        ("department = 'd'", "is not known: the column is department_id"),
        ("zone = 'UTC'", "is not known: the billing zone is a setting"),
        ("daily_completions = -1", "is -1: 0 (nothing is allowed) to 2,147,483,647, or"),
        ("daily_completions = 2147483648", "is 2147483648: 0 (nothing"),
        ("daily_tokens = 9223372036854775808", "is 9223372036854775808: 0 (nothing"),
        ("daily_tokens = 5.5", "is 5.5: a whole number is needed"),
        ("daily_tokens = true", "is true or false: a whole number is needed"),
        ("daily_tokens = '5'", "is the text '5': a whole number without quotes"),
        ("daily_cost_cents = 'Unlimited'", 'or "unlimited"'),
        ("soft_warn_pct = 101", "is 101: 0 to 100"),
        ("soft_warn_pct = 'unlimited'", "is the text 'unlimited': a whole number"),
        ("bucket_capacity = inf", "is inf: 0 to"),
        ("bucket_capacity = nan", "is nan: 0 to"),
        ("bucket_capacity = '10'", "is a text: a number is needed"),
        ("reservation_ttl_seconds = 0", "is 0: 1 to 86,400"),
        ("environment = 'prod'", "is 'prod', which there is not: did you mean production?"),
        ("locale = 'zh'", "did you mean zh-CN?"),
        ("enforce = true", "is true or false: a text in quotes is needed, one of on"),
        ("department_id = 'a\\nb'", "holds a control character"),
        ("department_id = 'x'\nremove = true", "stands alone: what goes has no limits"),
        ("remove = false", "takes true alone"),
        ("daily_tokens = 2026-01-01", "is a date or time: a whole number"),
    ],
)
def test_a_wrong_value_is_named_with_its_line_and_cure(line: str, fault: str) -> None:
    text = line.replace("'", '"')
    told = faults_of(f"\n[tenants.acme]\n{text}\n")
    number = 4 + text.count("\n")
    assert len(told) == 1
    key = text.rpartition("\n")[2].partition(" ")[0]
    assert told[0].startswith(f"line {number}, tenants.acme.{key} ")
    assert fault in told[0]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[department.d]", "line 2, department is not known: did you mean departments?"),
        ("[budgets.d]", "line 2, budgets is not known: a budget stands with its department"),
        ("[departments.d.budgets.prod]", "is no environment: did you mean production?"),
        ("[departments.d.budgets]\ntest = 5", "budgets.test is a number: write a table"),
        ("[[tenants]]", "tenants is a list: write a table for each, [tenants.NAME]"),
        ('[tenants.""]', 'tenants."" is no name, it is empty'),
        (f"[tenants.{'x' * 201}]", "is longer than 200 letters"),
        ("[departments.d]\nowner_emails = ['me']", "'me', which is no address like"),
        ("[departments.d]\nowner_emails = ['a@b', 'a@b']", "holds 'a@b' twice"),
        ("[departments.d]\nowner_emails = 'a@b'", "is a text: a list of texts is needed"),
        ("[departments.d]\nremove = true\n[departments.d.budgets.test]", "its budgets go with it"),
        ("[departments.d.budgets.test]\nallowed_models = [1]", "holds a number as entry 1"),
        ("[tenants.a]\n[tenants.a]", "line 3, column"),
        ("[tenants.a]\nlocale = en", "line 3"),
        ("[tenants.a\n", "line 2"),
    ],
)
def test_a_wrong_table_is_named(text: str, fault: str) -> None:
    told = faults_of(text)
    assert len(told) == 1
    assert fault in told[0]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "format_version is missing: write format_version = 1"),
        (b"format_version = 2", "is '2': this quota-worker reads 1, install a newer one"),
        (b"format_version = true", "is 'True': this quota-worker reads 1: write that number"),
        (b"format_version = 1\n# \xff", "line 2 is not UTF-8"),
    ],
)
def test_another_format_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(RefusedLimitsError, match=r"nothing was changed") as caught:
        parse_limits(data, "l.toml")
    assert fault in str(caught.value)


def test_all_faults_are_told_at_once_and_names_are_harmless() -> None:
    told = faults_of('[tenants."a\\u001b[31m"]\n[tenants.b]\nlocale = "x"\ndaily_tokens = -1\n')
    assert len(told) == 3
    assert "\x1b" not in "".join(told)
    many = "".join(f"[tenants.t{n}]\nlocal = 'en'\n" for n in range(200))
    assert len(faults_of(many)) == 51
    assert faults_of(many)[-1] == "… and more"


def test_a_file_of_too_many_rows_is_to_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.limits.reading.ROWS_MAX", 2)
    parse_limits(f"{HEAD}[tenants.a]\n[tenants.b]".encode(), "l.toml")
    assert "3 rows, more than 2: split it" in faults_of("[tenants.a]\n[tenants.b]\n[tenants.c]")[0]


def test_an_unreadable_file_is_one_line(tmp_path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match=r"^[^\n]+: name a TOML file"):
            read_limits(path)


def found(row: dict[str, object] | None, recorded: dict[str, object] | None = None) -> Found:
    return Found(row, recorded, None if recorded is None else AT)


def verdict_of(text: str, rows: dict[Key, Found], around: Surroundings = NOBODY) -> Verdict:
    file = parse_limits((HEAD + text).encode(), "l.toml")
    wanted = {one.key: rows.get(one.key, found(None)) for one in file.wanted}
    return judge(file.wanted, wanted, around)


def test_percents_are_judged_with_those_that_the_file_leaves_out() -> None:
    rows = {
        Key(DEPARTMENT, "d"): found({"department_id": "d"}),
        Key(BUDGET, "d", "production"): found(BUDGET_ROW),
    }
    budget = "[departments.d.budgets.production]\n"
    (fault,) = verdict_of(budget + "warn_pct = 95", rows).faults
    assert "line 2, departments.d.budgets.production has its percents out of order" in fault
    assert "warn_pct 95, downgrade_pct 90 (not in the file)" in fault
    assert verdict_of(budget + "warn_pct = 95\ndowngrade_pct = 96", rows).faults == ()
    assert verdict_of(budget + "protect_pct = 80", {}).faults  # of a new row, with the defaults
    equal = verdict_of(budget + "warn_pct = 90", rows)
    assert (equal.faults, len(equal.notes)) == ((), 1)


def test_a_downgrade_on_tokens_alone_is_remarked() -> None:
    text = '[departments.d.budgets.test]\nmonthly_tokens = 5\ndowngrade_model = "small"'
    assert "saves money, not tokens" in verdict_of(text, {}).notes[0]
    assert verdict_of(f"{text}\nmonthly_cost_cents = 5", {}).notes == ()


def test_an_unknown_department_is_met_with_what_was_meant() -> None:
    text = '[tenants.t]\ndepartment_id = "marketting"\n'
    around = Surroundings((), ("marketing", "sales"), ())
    assert "did you mean marketing?" in verdict_of(text, {}, around).faults[0]
    assert verdict_of(text, {}, Surroundings(("marketting",), (), ())).faults == ()
    assert verdict_of(f"{text}[departments.marketting]\n", {}).faults == ()
    assert "add [departments.NAME]" in verdict_of(text, {}).faults[0]
    gone = f"{text}[departments.marketting]\nremove = true\n"
    rows = {Key(DEPARTMENT, "marketting"): found({"department_id": "marketting"})}
    assert "which goes" in verdict_of(gone, rows).faults[0]


def test_a_department_stays_while_a_tenant_names_it() -> None:
    rows = {
        Key(DEPARTMENT, "d"): found({"department_id": "d"}),
        Key(TENANT, "a"): found({"tenant_id": "a", "department_id": "d"}),
    }
    around = Surroundings((), (), (("d", "a"), ("d", "b")))
    text = "[departments.d]\nremove = true\n[tenants.a]\n"
    assert "'a' and 1 more tenants belong" in verdict_of(text, rows, around).faults[0]
    moved = f'{text}department_id = ""\n'
    assert "the tenant 'b' belongs" in verdict_of(moved, rows, around).faults[0]
    both = f"{text}remove = true\n[tenants.b]\nremove = true\n"
    rows[Key(TENANT, "b")] = found({"tenant_id": "b", "department_id": "d"})
    assert verdict_of(both, rows, around).faults == ()


def test_odd_limits_must_be_named_by_what_changes_their_row() -> None:
    rows = {Key(TENANT, "t"): found({"tenant_id": "t", "locale": None, "daily_tokens": -5})}
    (fault,) = verdict_of('[tenants.t]\nlocale = "en"', rows).faults
    assert "tenants.t.daily_tokens is -5 in the database" in fault
    assert verdict_of('[tenants.t]\nlocale = "en"\ndaily_tokens = 5', rows).faults == ()
    assert verdict_of('[tenants.t]\nlocale = ""', rows).faults == ()  # nothing changes


def test_the_diff_is_sorted_and_tells_drift() -> None:
    row = {"tenant_id": "t", "daily_tokens": 9, "locale": None, "enforce": "on"}
    rows = {Key(TENANT, "t"): found(row, row | {"daily_tokens": 5, "unknown": 1})}
    text = (
        '[tenants.t]\ndaily_tokens = "unlimited"\nenforce = "on"\n[tenants.a]\n'
        '[departments.z.budgets.test]\nmonthly_tokens = 1\n[departments.b]\nname = "B"\n'
    )
    verdict = verdict_of(text, rows)
    drift = "! tenant t: daily_tokens was 5 when recorded 2026-11-30 12:00:00 UTC, "
    drift += "and was changed in the database to 9"
    assert diff_text(verdict).splitlines() == [
        "+ department b",
        '+   name = "B"',
        "+ department z",
        "+ budget z (test)",
        "+   monthly_tokens = 1",
        "+ tenant a",
        "  tenant t",
        "-   daily_tokens = 9",
        '+   daily_tokens = "unlimited"',
        drift,
    ]


def test_what_is_shown_as_toml_reads_back_as_it_was() -> None:
    name = "a.b \"c\" \\ 租户 \u200b = ['x']"
    tenant = {
        "department_id": name,
        "environment": "test",
        "enforce": "off",
        "daily_completions": 0,
        "daily_tokens": 9_223_372_036_854_775_807,
        "bucket_capacity": 0.1,
        "bucket_refill_per_sec": 1e15,
        "soft_warn_pct": 80,
        "stale_policy": "partial",
        "reservation_ttl_seconds": 1,
        "daily_cost_cents": -5,
    }
    budget = BUDGET_ROW | {"allowed_models": [], "downgrade_from": [name], "downgrade_model": name}
    rows = [
        Limits(
            Key(DEPARTMENT, name),
            {"name": name, "owner_emails": ["a@b"], "finance_emails": []},
            None,
        ),
        Limits(Key(BUDGET, name, "production"), budget, None),
        Limits(Key(TENANT, name), tenant, None),
    ]
    text = "\n".join([TOML_HEADER, *map(toml_table, rows)])
    assert "# daily_cost_cents is -5 in the database" in text
    file = parse_limits(text.encode(), "l.toml")
    for one, limits in zip(file.wanted, rows, strict=True):
        assert one.key == limits.key
        for column, value in one.columns.items():
            assert value == limits.row.get(column), column
    json.dumps([one.columns for one in file.wanted])


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        (BUDGET, "allowed_models", ["a", "a"]),
        (BUDGET, "allowed_models", [None, "a"]),
        (BUDGET, "downgrade_from", ["", "a"]),
        (BUDGET, "downgrade_model", ""),
        (DEPARTMENT, "owner_emails", ["nobody"]),
        (DEPARTMENT, "finance_emails", ["a@b", "a@b"]),
        (TENANT, "bucket_capacity", "NaN"),
    ],
)
def test_what_no_file_may_say_is_shown_as_a_comment(kind: str, column: str, value: object) -> None:
    environment = "test" if kind == BUDGET else ""
    row = {name: default for name, default in BUDGET_ROW.items() if kind == BUDGET}
    limits = Limits(Key(kind, "x", environment), row | {column: value}, None)
    text = f"{TOML_HEADER}\n{toml_table(limits)}\n"
    assert f"# {column} is " in text
    wanted = parse_limits(text.encode(), "l.toml").wanted[-1]
    assert column not in wanted.columns
    assert line_of(limits)


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "x" * 201])
def test_a_name_that_no_file_may_have_is_a_comment(name: str) -> None:
    table = toml_table(Limits(Key(TENANT, name), {"daily_tokens": 5}, None))
    assert "is left out, its name " in table
    assert parse_limits(f"{TOML_HEADER}\n{table}\n".encode(), "l.toml").wanted == ()


def test_a_department_that_is_missing_already_is_a_remark_and_no_fault() -> None:
    row = {"tenant_id": "t", "department_id": "gone", "daily_tokens": 5}
    rows = {Key(TENANT, "t"): found(row)}
    same = verdict_of('[tenants.t]\ndepartment_id = "gone"\ndaily_tokens = 5', rows)
    assert (same.faults, same.changes) == ((), ())
    assert "is 'gone', which is no department, as before" in same.notes[0]
    other = verdict_of('[tenants.t]\ndepartment_id = "other"', rows)
    assert "is 'other', which is no department" in other.faults[0]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("3d", 259_200), ("5S", 5)]
)
def test_spans_are_read_and_shown(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds
    assert parse_span(shown_span(seconds)) == seconds


@pytest.mark.parametrize(
    "text", ["", "2", "h", "-2h", "2 h", "2h 30", "0s", "367d", "\uff19h", "1e3s"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 90m, 2h"):
        parse_span(text)
