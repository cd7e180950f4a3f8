"""An installation in a folder whose name no quoting may be careless with, and how to run its files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from worker.assets import Assets
from worker.install.filling import Installation
from worker.install.plan import Asked, Home, Plan, planned

ROOT = Path(__file__).resolve().parents[2]
CRON = ROOT / "cron.d"
ODD = """it's a "dir" 100%u \\% $HOME `id` [x] {a,b} 租户"""
# As pip writes it where the Python's path has spaces; the program then knows its own path.
LAUNCHER = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
sys.path.insert(0, {root!r})
from worker.cli import main
main()
"""
HOME = Home(Path("/h/.config"), Path("/h/.hermes"))
# hermes-agent 0.19.0, cron/scheduler.py: words that make a notice of another fault.
MISTAKEN = re.compile(
    r"429|(?i:rate limit|usage limit|timed out|timeout|authenticat|authoriz)|\b(?:401|403)\b"
)


def program_in(folder: Path) -> Path:
    """The real program, called by another path."""
    path = folder / "quota-worker"
    path.write_text(LAUNCHER.format(python=sys.executable, root=str(ROOT)), encoding="utf-8")
    path.chmod(0o755)
    return path


def odd_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ODD
    folder.mkdir()
    return folder


def plan(kind: str, made: Installation, **variants: object) -> Plan:
    asked = Asked(kind, is_root=bool(variants.pop("is_root", True)), **variants)  # type: ignore[arg-type]
    return planned(asked, made, HOME, Assets().read)


def run(
    *command: str, folder: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """With no more of the environment than cron has."""
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)} | (environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def cron_command(line: str) -> str:
    """What cron hands to the shell of a line's command: do_command.c of Vixie's cron."""
    command, escaped = "", False
    for letter in line:
        if escaped:
            command = command[:-1] + letter if letter == "%" else command + letter
            escaped = False
            continue
        if letter == "%":
            break
        command += letter
        escaped = letter == "\\"
    return command
