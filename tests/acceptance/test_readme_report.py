"""README's recipe of the monthly report, run as it stands by a shell: it shows what README shows."""

from __future__ import annotations

import asyncio
import re
import shlex
import socket
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.program import environment

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

ROOT = Path(__file__).resolve().parents[2]
PSQL = re.compile(r"^psql \"\$POSTGRES_DSN\" <<'END'\n(.*?)^END\n", re.MULTILINE | re.DOTALL)
SERVER = "python -m aiosmtpd "
# An address in use, or a server that doesn't start, ends it: no mail goes elsewhere.
STARTS = """{command} & server=$!
trap 'kill $server' EXIT
until python -c 'import socket; socket.create_connection(("127.0.0.1", {port})).close()' 2>/dev/null
do kill -0 $server; sleep 0.1; done
"""


def last_closed_month() -> date:
    """Its last day. The 72 hours after a month, and an hour to run in, belong to that month."""
    four_days_ago = datetime.now(UTC).date() - timedelta(days=4)
    return four_days_ago.replace(day=1) - timedelta(days=1)


def recipe(port: int) -> list[str]:
    """The section's blocks, of a month that is closed by now whatever the clock says."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("\n## Monthly report\n") : text.index("\n## Schedules\n")]
    month = last_closed_month()
    for old, new in (("2026-10", f"{month:%Y-%m}"), ("Oct 2026", f"{month:%b %Y}")):
        section = section.replace(old, new)
    section = section.replace("8025", str(port))
    return re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def without_times(text: str) -> str:
    """Nor the month since, which is listed as closing where a month has just begun."""
    since = last_closed_month() + timedelta(days=1)
    text = re.sub(rf"^{since:%Y-%m} .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "(time)", text)


async def test_the_recipe_of_the_monthly_report_shows_what_the_readme_shows(
    dsn: str, conn: Connection, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script, shown = ["set -e"], []
    for block in recipe(port):
        if block.startswith("$ "):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, answer = part.partition("\n")
                script.append(f"{{ {command}; }} >shown-{len(shown)} 2>&1")
                shown.append(answer.rstrip("\n"))
        elif block.startswith(SERVER):
            script.append(STARTS.format(command=block.strip(), port=port))
        else:
            for rows in PSQL.findall(block):
                await conn.execute(rows)
            script.append(PSQL.sub("", block))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, arguments in (("quota-worker", "-m worker"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        program.chmod(0o755)
    usual = environment(dsn, PYTHONPATH=str(ROOT))
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", "\n".join(script)),
        cwd=tmp_path,
        env=usual | {"PATH": f"{programs}:{usual['PATH']}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said.decode()
    assert len(shown) == 6
    for number, answer in enumerate(shown):
        found = (tmp_path / f"shown-{number}").read_text(encoding="utf-8").rstrip("\n")
        if "Subject: " in answer:  # the mails come in any order
            assert sorted(found.splitlines()) == sorted(answer.splitlines())
        else:
            assert without_times(found) == without_times(answer)
    mails = list((tmp_path / "mails" / "new").iterdir())
    assert len(mails) == 8
