"""A wheel that is built and installed elsewhere works from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def call(
    installed: Path, cwd: Path, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("POSTGRES_", "QUOTA_WORKER_"))}
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
        # Before this checkout, which is installed in the same environment.
        env=kept | environ | {"PYTHONPATH": str(installed)},
    )


def test_it_carries_all_that_the_program_reads(installed: Path) -> None:
    for folder in ("sql", "templates", "cron.d"):
        here = {p.relative_to(ROOT / folder) for p in (ROOT / folder).rglob("*") if p.is_file()}
        there = {
            p.relative_to(installed / "worker/_assets" / folder)
            for p in (installed / "worker/_assets" / folder).rglob("*")
            if p.is_file()
        }
        assert here == there
    code = {
        p.relative_to(ROOT)
        for p in (ROOT / "worker").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert {p for p in code if not (installed / p).is_file()} == set()
    assert not (installed / "tests").exists()


def test_it_migrates_from_its_own_files(installed: Path, tmp_path: Path) -> None:
    where = call(installed, tmp_path, "migrate", "--print")
    assert where.returncode == 0
    assert "0001_ledger" in where.stdout
    script = "import worker.assets; print(worker.assets.Assets().root)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(installed / "worker" / "_assets")


def test_it_runs_the_demo(installed: Path, tmp_path: Path, server_home: Path) -> None:
    done = call(installed, tmp_path, "demo", QUOTA_WORKER_DATA=str(server_home / "state"))
    assert done.returncode == 0, done.stderr
    assert "tenant-abuser" in done.stdout
    assert "[quota-warn] tenant-free at " in done.stdout + done.stderr
