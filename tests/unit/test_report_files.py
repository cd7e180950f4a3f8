"""Files of reports: whole or not there at all."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from worker.commands.report import write_new
from worker.errors import UsageError


def test_a_file_on_a_full_disk_leaves_no_part_of_itself(tmp_path: Path) -> None:
    path, usual = tmp_path / "roi-2026-10.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, usual[1]))
    try:
        with pytest.raises(UsageError, match="can't be written: File too large"):
            write_new(path, b"figures " * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert not path.exists()
    write_new(path, b"figures")
    with pytest.raises(UsageError, match="exists: move it away"):
        write_new(path, b"others")
    assert path.read_bytes() == b"figures"
