"""A source archive is a whole checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_a_source_archive_has_all_that_make_test_needs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        there = {name.partition("/")[2] for name in content.getnames()}
    needed = {
        "Makefile", ".ci/run", "requirements.txt", "requirements-dev.txt", "pyproject.toml",
        "README.md", "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
    for folder in ("worker", "sql", "templates", "cron.d", "examples", "tests", "docs", "bench"):
        found = {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert found, folder
        needed |= found
    assert needed - there == set()
