"""The embedded server's folder: made with the right mode, or recognized as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.errors import DataFolderError

if TYPE_CHECKING:
    from pathlib import Path

    from worker.postgres.accounts import Account

_BLANK = 0x20
# What a disk of its own holds from the start.
_NOBODYS = {"lost+found"}


def make_folder(wanted: Path, account: Account) -> None:
    """Make the folder and those above it; a server of another user's may enter them.

    Raises DataFolderError. Control characters in the name would break PostgreSQL's own files.
    """
    if any(ord(character) < _BLANK for character in str(wanted)):
        raise DataFolderError(
            f"{str(wanted)!a} has a control character in its name: "
            "choose another folder with QUOTA_WORKER_DATA"
        )
    mode = 0o700 if account.name is None else 0o711
    missing = [folder for folder in (wanted, *wanted.parents) if not folder.is_dir()]
    try:
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)  # ours: just made, whatever the umask
    except OSError as error:
        raise DataFolderError(
            f"{wanted} can't be made ({error.strerror}): "
            "choose another folder with QUOTA_WORKER_DATA"
        ) from error


def refuse_foreign_home(home: Path) -> None:
    """Raise DataFolderError for a folder with files but none that every home of ours has."""
    try:
        names = {path.name for path in home.iterdir()} - _NOBODYS
    except OSError as error:
        raise DataFolderError(
            f"{home} can't be read ({error.strerror}): choose another folder with QUOTA_WORKER_DATA"
        ) from error
    if names and "starter.lock" not in names and not (home / "data" / "PG_VERSION").is_file():
        raise DataFolderError(
            f"{home} holds other files: choose an empty or new folder with QUOTA_WORKER_DATA"
        )
