"""Who does something, and why: words for a record that others will read."""

from __future__ import annotations

from typing import Final

from worker.errors import UsageError

WORDS_MAX: Final = 200


def signed_by(by: str | None, option: str = "--by") -> str:
    """What was said, else the name of the user who runs this. Raises UsageError."""
    return signed_words(option, _user_name() if by is None else by)


def signed_words(option: str, text: str) -> str:
    """The words of an option on one line. Raises UsageError."""
    words = text.strip()
    if not words:
        raise UsageError(f"{option} is empty: it is kept in the record")
    if len(words) > WORDS_MAX:
        raise UsageError(f"{option} is longer than {WORDS_MAX} letters: shorten it")
    if any(ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F for one in words):  # noqa: PLR2004  controls
        raise UsageError(f"{option} holds a line break or control character: write one plain line")
    return words


def _user_name() -> str:
    import getpass
    import os

    # under sudo the person, not the account
    if (person := os.environ.get("SUDO_USER")) is not None and os.geteuid() == 0:
        return person
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return f"uid {os.getuid()}"
