"""Files are put in place whole or not at all, and what a person changed stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from worker.install.writing import (
    EditedFileError,
    EnvFile,
    FileRefusedError,
    PlannedFile,
    env_remark,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CURE = "do this"


def content(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def outcomes(told: list[tuple[str, Path]]) -> list[str]:
    return [outcome for outcome, _ in told]


def test_written_then_unchanged_then_replaced_when_the_program_moved(tmp_path: Path) -> None:
    path = tmp_path / "a/b/unit"
    first = PlannedFile(path, "one\n", 0o755)
    assert outcomes(write_all([first], None, CURE, force=False)) == ["written"]
    assert path.stat().st_mode & 0o7777 == 0o755
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert outcomes(write_all([first], None, CURE, force=False)) == ["unchanged"]
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    second = PlannedFile(path, "two\n")
    assert outcomes(write_all([second], None, CURE, force=False)) == ["replaced"]
    assert path.read_text() == second.marked
    assert list(content(tmp_path)) == ["a/b/unit"]


@pytest.mark.parametrize(
    "edited",
    [
        lambda text: text.replace("one", "mine"),
        lambda text: text + "more\n",
        lambda _: "mine alone\n",
        lambda _: "",
        lambda text: text.replace("one\n", "one\n\n"),
    ],
)
def test_an_edited_file_stays_and_nothing_else_is_written(edited: object, tmp_path: Path) -> None:
    files = [PlannedFile(tmp_path / name, "one\n") for name in ("first", "second")]
    write_all(files, None, CURE, force=False)
    text = edited(files[1].marked)  # type: ignore[operator]
    files[1].path.write_text(text)
    wanted = [file._replace(text="two\n") for file in files]
    env = EnvFile(tmp_path / "env", "A=1\n", None)
    before = content(tmp_path)
    with pytest.raises(EditedFileError, match="second was edited by hand: nothing was written"):
        write_all(wanted, env, CURE, force=False)
    assert content(tmp_path) == before
    assert outcomes(write_all(wanted, env, CURE, force=True)) == ["replaced"] * 2 + ["written"]
    assert files[1].path.read_text() == wanted[1].marked


def test_the_difference_is_shown_without_the_checksum_and_without_escapes(tmp_path: Path) -> None:
    file = PlannedFile(tmp_path / "unit", "one\nkept\n")
    write_all([file], None, CURE, force=False)
    file.path.write_text(file.marked.replace("one", "m\x1b[31mine"))
    with pytest.raises(EditedFileError) as caught:
        write_all([file], None, CURE, force=False)
    changed = [line for line in caught.value.difference if line[:1] in "+-"][2:]
    assert changed == ["-m␛[31mine", "+one"]
    assert not any("checksum" in line for line in caught.value.difference)
    file.path.write_text(f"{file.marked}  mine\n")
    with pytest.raises(EditedFileError) as caught:
        write_all([file], None, CURE, force=False)
    assert caught.value.difference[3:] == (" one", " kept", "-  mine")


def test_a_unit_that_was_masked_stays_masked(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    path.symlink_to("/dev/null")
    with pytest.raises(EditedFileError):
        write_all([PlannedFile(path, "one\n")], None, CURE, force=False)
    assert path.is_symlink()


@pytest.mark.parametrize("there", ["text", "link", "folder"])
def test_a_variables_file_is_never_overwritten(there: str, tmp_path: Path) -> None:
    path = tmp_path / "env"
    if there == "text":
        path.write_text("MINE=1\n")
    elif there == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.mkdir()
    told = write_all([], EnvFile(path, "A=1\n", None), CURE, force=True)
    assert outcomes(told) == ["kept"]
    assert there != "text" or path.read_text() == "MINE=1\n"
    assert there != "link" or path.is_symlink()


def test_a_variables_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if somebody had made it after it was looked for."""
    path = tmp_path / "env"
    path.write_text("MINE=1\n")
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    with pytest.raises(FileRefusedError, match="env can't be written: File exists"):
        write_all([], EnvFile(path, "A=1\n", None), CURE, force=True)
    assert content(tmp_path) == {"env": "MINE=1\n"}


def test_a_new_variables_file_is_for_its_group_to_read(tmp_path: Path) -> None:
    group = 12345 if os.geteuid() == 0 else None
    old = os.umask(0)
    try:
        write_all([], EnvFile(tmp_path / "env", "A=1\n", group), CURE, force=False)
    finally:
        os.umask(old)
    found = (tmp_path / "env").stat()
    assert found.st_mode & 0o7777 == 0o640
    assert found.st_gid == (group or os.getgid())
    assert env_remark(tmp_path / "env") is None
    (tmp_path / "env").chmod(0o644)
    assert "is open to everybody, and holds secrets" in str(env_remark(tmp_path / "env"))


@pytest.fixture
def without_rights() -> Iterator[None]:
    """As another user than root, whom nothing is refused to."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_without_rights_nothing_is_half_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    open_folder, closed = tmp_path / "open", tmp_path / "closed"
    for folder, mode in ((open_folder, 0o777), (closed, 0o555)):
        folder.mkdir()
        folder.chmod(mode)
    request.getfixturevalue("without_rights")
    files = [
        PlannedFile(open_folder / "new/first", "one\n"),
        PlannedFile(closed / "unit", "one\n"),
    ]
    env = EnvFile(open_folder / "env", "A=1\n", None)
    message = f"{closed}/unit can't be written: Permission denied: do this"
    with pytest.raises(FileRefusedError) as caught:
        write_all(files, env, CURE, force=False)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2
    assert list(open_folder.iterdir()) == []
    # the variables' file is the last, and what stands before it is taken back as well
    with pytest.raises(FileRefusedError, match="closed/env can't be written"):
        write_all(files[:1], EnvFile(closed / "env", "A=1\n", None), CURE, force=False)
    assert list(open_folder.iterdir()) == []


def test_a_folder_in_a_files_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    with pytest.raises(FileRefusedError, match="unit can't be read: Is a directory"):
        write_all([PlannedFile(tmp_path / "unit", "x\n")], None, CURE, force=True)
    (tmp_path / "file").touch()
    with pytest.raises(FileRefusedError, match="file/unit can't be written: Not a directory"):
        write_all([PlannedFile(tmp_path / "file/unit", "x\n")], None, CURE, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_in_a_files_place_is_neither_waited_for_nor_replaced(
    tmp_path: Path,
    force: bool,  # noqa: FBT001  parametrized
) -> None:
    os.mkfifo(tmp_path / "unit")
    with pytest.raises(FileRefusedError, match="unit is no plain file: look what is there"):
        write_all([PlannedFile(tmp_path / "unit", "x\n")], None, CURE, force=force)
    assert (tmp_path / "unit").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_to_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "unit").symlink_to(tmp_path / "pipe")
    with pytest.raises(EditedFileError):
        write_all([PlannedFile(tmp_path / "unit", "x\n")], None, CURE, force=False)
    write_all([PlannedFile(tmp_path / "unit", "x\n")], None, CURE, force=True)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "unit").is_file()
