"""What README and the schedules' files say, held against what the program does."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import asyncpg
import pytest

from acceptance.program import environment
from worker.commands import COMMANDS
from worker.configuration.variables import variable_remarks
from worker.jobs.context import JobCounts
from worker.jobs.registry import JOBS
from worker.limits.reading import parse_limits
from worker.notifiers.feishu_card import _COLOURS
from worker.prices.files import read_prices, read_rates
from worker.prices.shape import RefusedFileError
from worker.settings import DeliverySettings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CRON = ROOT / "cron.d"
ENV_FILE = "/etc/quota-worker/env"
PROGRAM = "/opt/quota-worker/.venv/bin/quota-worker"


def heredoc(name: str) -> str:
    """A file that README has its reader write with `cat > NAME <<'END'`."""
    found = re.search(
        rf"^cat > {re.escape(name)} <<'END'\n(.*?)^END$", README, re.MULTILINE | re.DOTALL
    )
    assert found, name
    return found[1]


def run(*command: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(None, **environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_wrong_file_of_the_readme_has_the_faults_that_the_readme_shows(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(heredoc("wrong.toml"), encoding="utf-8")
    shown = re.search(r"\$ (quota-worker --config wrong.toml .*)\n((?:.+\n)+)```", README)
    assert shown
    command = [sys.executable, "-m", "worker", *shown[1].split()[1:]]
    done = run(*command, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", shown[2])


def test_the_program_that_only_writes_down_runs_as_the_readme_has_it(tmp_path: Path) -> None:
    script = tmp_path / "imbot-look"
    script.write_text(heredoc("imbot-look"), encoding="utf-8")
    script.chmod(0o755)
    done = run(
        *(sys.executable, "-m", "worker", "channel", "test", "im-bot"),
        folder=tmp_path,
        PYTHONPATH=str(ROOT),
        QUOTA_WORKER_IMBOT_GROUP="quota-alerts",
        QUOTA_WORKER_IMBOT_COMMAND=str(script),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "imbot.log").read_text().startswith("to quota-alerts:\n[quota-test] ")


def test_the_prices_and_rates_of_the_readme_are_read(tmp_path: Path) -> None:
    for name in ("prices.toml", "rates.csv"):
        (tmp_path / name).write_text(heredoc(name), encoding="utf-8")
    (price,) = read_prices(tmp_path / "prices.toml")
    assert (price.model, price.currency) == ("qwen-max", "CNY")
    (rate,) = read_rates(tmp_path / "rates.csv", "CNY")
    assert (rate.currency, str(rate.rate)) == ("USD", "7.1142")
    with pytest.raises(RefusedFileError) as caught:
        read_rates(tmp_path / "rates.csv", "USD")
    (fault,) = caught.value.faults
    assert fault.startswith("line 2: USD is the billing currency itself: it needs no rate; ")


def test_every_link_leads_somewhere() -> None:
    def anchors(path: Path) -> set[str]:
        titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    checked, broken = 0, []
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            checked += 1
            path, _, anchor = link.partition("#")
            to = page.parent / path if path else page
            if not to.exists() or (anchor and anchor not in anchors(to)):
                broken.append(f"{page.name}: {link}")
    assert checked > 100
    assert broken == []


def test_the_limits_file_of_the_readme_is_taken() -> None:
    limits = parse_limits(heredoc("sales.toml").encode(), "sales.toml")
    assert {one.key.subject for one in limits.wanted} == {"sales", "shop"}


def test_every_command_that_asks_the_ledger_stands_with_its_role() -> None:
    row = next(line for line in README.splitlines() if line.startswith("| `quota_worker` | every"))
    named = set(re.findall(r"`([a-z]+)`", row))
    assert set(COMMANDS) - {"channel", "install", "preview"} <= named


def test_migrate_is_shown_with_every_migration() -> None:
    names = [path.stem for path in sorted((ROOT / "sql/migrations").glob("*.sql"))]
    shown = re.findall(r"^schema public: (.*)$", README, re.MULTILINE)
    assert shown
    assert set(shown) == {", ".join(names)}


def test_every_count_of_a_job_is_explained() -> None:
    counts = {
        name
        for job in JOBS
        for kind in vars(importlib.import_module(f"worker.jobs.{job.name}")).values()
        if isinstance(kind, type) and issubclass(kind, JobCounts)
        for name in kind().as_counts()
    }
    assert {"leftover", "failed", "dead", "rearmed"} < counts
    jobs = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    table = jobs.partition("| count | of | means |")[2].partition("\n\n")[0]
    explained = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:80])}
    assert counts - explained == set()


def test_every_colour_of_a_card_is_named() -> None:
    channels = (ROOT / "docs/channels.md").read_text(encoding="utf-8")
    said = channels.partition("its header coloured by severity: ")[2].partition(".")[0]
    assert [colour for colour in _COLOURS.values() if colour not in said] == []


def test_the_schedules_agree_with_each_other_and_with_the_readme() -> None:
    crontab = (CRON / "crontab").read_text().splitlines()[-1]
    assert crontab in README.splitlines()
    files = {
        path.name: path.read_text(encoding="utf-8") for path in CRON.rglob("*") if path.is_file()
    }
    for name in ("crontab", "quota-worker.yaml", "cronjob.yaml"):
        assert "2-59/5 * * * *" in files[name], name
    assert "OnCalendar=*:2/5\n" in files["quota-worker.timer"]
    for name in ("crontab", "quota-worker.yaml", "quota-worker-tick.sh", "quota-worker.service"):
        assert ENV_FILE in files[name], name
        assert f"{PROGRAM} tick" in files[name], name
    # the file of the configuration: named in the variables, mounted there
    named = re.search(r"#QUOTA_WORKER_CONFIG='(.*)'", files["env.example"])
    assert named
    assert f"QUOTA_WORKER_CONFIG={named[1]}" in files["cronjob.yaml"]
    assert f"mountPath: {Path(named[1]).parent}\n" in files["cronjob.yaml"]
    for command in re.findall(r"kubectl create .*", files["cronjob.yaml"]):
        assert command in README.splitlines()
        assert re.search(rf"(secretN|n)ame: {command.split()[4]}\n", files["cronjob.yaml"])


def test_the_variables_of_the_example_are_known_and_those_of_the_example_file() -> None:
    text = (CRON / "env.example").read_text(encoding="utf-8")
    names = re.findall(r"^#?([A-Z_]+)='", text, re.MULTILINE)
    ours = [name for name in names if name.startswith("QUOTA_WORKER_")]
    assert len(ours) > 5
    assert variable_remarks(dict.fromkeys(ours, "x"), DeliverySettings()) == []
    told = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in told and name in ours] == []
    document = tomllib.loads((ROOT / "examples/quota-worker.toml").read_text(encoding="utf-8"))
    referred = {
        value["env"]
        for channel in document["channels"].values()
        for value in channel.values()
        if isinstance(value, dict) and "env" in value
    }
    assert set(names) - set(ours) - {"POSTGRES_DSN"} <= referred


@pytest.mark.parametrize("schedule", ["crontab", "hermes/quota-worker-tick.sh"])
async def test_a_schedule_ticks_with_a_configuration_file(
    schedule: str, dsn: str, conn: asyncpg.Connection, tmp_path: Path
) -> None:
    """The line as cron runs it, with paths of this test; the system's log is a file."""
    (tmp_path / "signing").write_text("s")
    (tmp_path / "quota-worker.toml").write_text(
        '[channels.ops]\nkind = "feishu-webhook"\nurl = { env = "OPS_URL" }\n'
        'secret = { file = "signing" }\n'
    )
    (tmp_path / "env").write_text(
        f"POSTGRES_DSN='{dsn}'\nQUOTA_WORKER_CONFIG='{tmp_path}/quota-worker.toml'\n"
    )
    line = (CRON / schedule).read_text(encoding="utf-8")
    if schedule == "crontab":
        line = line.splitlines()[-1].split(maxsplit=5)[5]
    line = line.replace(ENV_FILE, f"{tmp_path}/env").replace("logger -t quota-worker", "cat >&2")
    line = line.replace(PROGRAM, f"{sys.executable} -m worker")
    shell = "sh" if schedule == "crontab" else "bash"
    done = run(shell, "-c", line, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert await conn.fetchval("SELECT count(*) FROM job_runs") == 0
    assert "channels.ops.url names the variable OPS_URL, which is not set" in done.stderr
    with (tmp_path / "env").open("a") as file:
        file.write("OPS_URL='https://open.feishu.cn/open-apis/bot/v2/hook/a'\n")
    done = run(shell, "-c", line, folder=tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (0, "")
    assert await conn.fetchval("SELECT count(*) FROM job_runs WHERE outcome = 'done'") == len(JOBS)
