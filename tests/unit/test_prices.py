"""Files of overrides and rates: every fault with its place; and the package without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from worker.errors import UsageError
from worker.prices.files import read_prices, read_rates
from worker.prices.package import PACKAGE_CURE, installed_prices
from worker.prices.shape import Price, Rate, RefusedFileError

ROOT = Path(__file__).resolve().parents[2]
HEADER = "model,provider,processing,valid_from,input_above,currency,input,cached_input,output\n"


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_csv_and_toml_say_the_same_exactly(tmp_path: Path) -> None:
    rows = (
        "\ufeff" + HEADER + "GPT-X,OpenAI,batch,2026-11-01,0,USD,0.1,,1e-3\n\n"
        "gpt-x,openai,batch,2026-11-01,200000,USD,0.30,0.1,2\n"
    )
    tables = """
        [[prices]]
        model = "GPT-X"
        provider = "OpenAI"
        processing = "batch"
        valid_from = 2026-11-01
        currency = "USD"
        input = 0.1
        output = 1e-3
        [[prices]]
        model = "gpt-x"
        provider = "openai"
        processing = "batch"
        valid_from = "2026-11-01"
        input_above = 200000
        currency = "USD"
        input = "0.30"
        cached_input = 0.1
        output = 2
    """
    expected = tuple(
        Price("gpt-x", "USD", a, b, c, "openai", "batch", "2026-11-01", "00:00:00", above)
        for a, b, c, above in (
            (Decimal("0.1"), None, Decimal("0.001"), 0),
            (Decimal("0.30"), Decimal("0.1"), Decimal(2), 200_000),
        )
    )
    assert read_prices(written(tmp_path, "p.csv", rows)) == expected
    assert read_prices(written(tmp_path, "p.toml", tables)) == expected
    assert read_prices(written(tmp_path, "none.toml", "prices = []")) == ()


FAULTY_ROWS = {
    ",,,,,USD,1,,1": "model is missing",
    "a\x07,,,,,USD,1,,1": "model is at most 200 letters, none of them a control character",
    "a:batch,,,,,USD,1,,1": 'model goes without ":batch": say processing = batch',
    "a,o/p,,,,USD,1,,1": "provider is a short name such as openai",
    "a,,slow,,,USD,1,,1": "processing is standard or batch",
    "a,,,2026-13-01,,USD,1,,1": "valid_from is a day such as 2026-11-01, or a time with its offset",
    "a,,,2026-11-01T00:00,,USD,1,,1": "valid_from: a time needs its offset",
    "a,,,,x,USD,1,,1": "input_above is a whole number of tokens",
    "a,,,,5,USD,1,,1": "input_above 5 has no row with input_above 0 beside it",
    "a,,,,,US,1,,1": "currency is three capital letters, such as USD",
    "a,,,,,,1,,1": "currency is missing",
    'a,,,,,USD,"1,4",,1': "input must be a number from 0 up",
    "a,,,,,USD,NaN,,1": "input must be a number from 0 up",
    "a,,,,,USD,1,-0.1,1": "cached_input must be a number from 0 up",
    "a,,,,,USD,1,,1e99": "output is at most 1,000,000,000",
    "a,,,,,USD,0.0000000000001,,1": "with at most 12 decimals",
    "a,,,,,USD,1,,": "output is missing",
}


@pytest.mark.parametrize("row", FAULTY_ROWS)
def test_a_faulty_row_is_refused_with_its_place(tmp_path: Path, row: str) -> None:
    path = written(tmp_path, "p.csv", HEADER + "good,,,,,USD,1,,1\n" + row + "\n")
    with pytest.raises(RefusedFileError, match="1 fault, so nothing of it was loaded") as caught:
        read_prices(path)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith("line 3: ")
    assert FAULTY_ROWS[row] in caught.value.faults[0]


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    tables = (
        '[[prices]]\nmodel = "a"\ncurrency = "USD"\ninput = true\noutput = 1\nprize = 2\n'
        '[[prices]]\nmodel = "b"\ncurrency = "USD"\ninput = 1\noutput = 1\n'
        '[[prices]]\nmodel = "B"\ncurrency = "CNY"\ninput = 2\noutput = 1\n'
    )
    with pytest.raises(RefusedFileError) as caught:
        read_prices(written(tmp_path, "p.toml", tables))
    assert [fault.partition(";")[0][:60] for fault in caught.value.faults] == [
        "[[prices]] number 1: 'prize' is not known: the keys are mode",
        "[[prices]] number 1: input must be a number",
        "[[prices]] number 3: says the same as [[prices]] number 2 on",
    ]


UNFIT_FILES = {
    "p.txt": (b"", "ends in .toml or .csv"),
    "missing.csv": (None, "No such file"),
    "empty.csv": (b"", "line 1: column model is missing"),
    "p.csv": (b"model,price\n", "line 1: column 'price' is not known"),
    "twice.csv": (b"model,model,currency,input,output\n", "column model stands twice"),
    "short.csv": (b"model,currency,input,output\nx,USD,1\n", "line 2 has 3 cells"),
    "quotes.csv": (b'model,currency,input,output\nx,"USD"a,1,1\n', "line 2: "),
    "latin.csv": (b"model,currency,input,output\n\xe9,USD,1,1\n", "line 2 is no UTF-8"),
    "p.toml": (b"[[prices]\n", "line 1"),
    "other.toml": (b"[model]\nname = 1\n", "'model' is not known: write each price as"),
    "html.csv": (b"<!DOCTYPE html>\n<html></html>\n", "is not known"),
}


@pytest.mark.parametrize("name", UNFIT_FILES)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    content, said = UNFIT_FILES[name]
    path = tmp_path / name if content is None else written(tmp_path, name, content)
    with pytest.raises(UsageError) as caught:
        read_prices(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rates(tmp_path: Path) -> None:
    good = "currency,date,rate\nUSD,2026-11-01,7.2\nEUR,2026-11-01,8\n"
    assert read_rates(written(tmp_path, "r.csv", good), "CNY") == (
        Rate("USD", "2026-11-01", Decimal("7.2")),
        Rate("EUR", "2026-11-01", Decimal(8)),
    )
    bad = (
        "currency,date,rate\nUSD,2026-11-01,0\nCNY,2026-11-01,1\nUSD,1.11.2026,7\n"
        "USD,2026-11-02,7\nUSD,2026-11-02,7.1\n,2026-11-02,x\n"
    )
    with pytest.raises(RefusedFileError) as caught:
        read_rates(written(tmp_path, "r.csv", bad), "CNY")
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "line 2", "line 3", "line 4", "line 6", "line 7", "line 7",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no rates in it"):
        read_rates(written(tmp_path, "r.csv", "currency,date,rate\n"), "CNY")


PROBE = """
import socket, sys, threading
def refuse(*_):
    raise SystemExit("asked the network")
socket.socket.connect = socket.getaddrinfo = refuse
assert "genai_prices" not in sys.modules
from worker.prices.package import PACKAGE_CURE, installed_prices
found = installed_prices()
assert len(found.prices) > 1000 and len(found.rules) > 1000 and len(found.names) > 500
assert threading.active_count() == 1, threading.enumerate()
"""


def test_the_package_asks_no_network_and_starts_no_thread() -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], check=False, capture_output=True, text=True
    )
    assert (probe.returncode, probe.stderr) == (0, "")


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(UsageError, match="genai-prices is not installed: install") as caught:
        installed_prices()
    assert PACKAGE_CURE in str(caught.value)
    for guide in ("README.md", "docs/prices.md"):
        text = (ROOT / guide).read_text(encoding="utf-8")
        for cure in re.findall(r"'(.*?)'", PACKAGE_CURE):
            assert f"pip install {'-e ' if cure[0] == '.' else ''}'{cure}'" in text, guide
