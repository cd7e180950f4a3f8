"""Reads one table of the configuration key by key, and collects what is wrong with it.

A fault is a sentence that begins with its key: what is wrong, and what would be right. Values
show in it only where they can't be secrets. The key is followed by a verb and never by a
colon, which would make the rest of the line look like a secret to the redaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.configuration.references import (
    BrokenReferenceError,
    UnreadableFileError,
    bytes_of,
    resolved,
)
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

TEXT_MAX_LETTERS: Final = 1_000
SHOWN_LETTERS: Final = 60
PART_LETTERS: Final = 2  # of a word, to be taken for it
KEY_MAX_LETTERS: Final = 40
CHOICES_SHOWN: Final = 20
PATH_MAX_BYTES: Final = 1_048_576
REFERENCE: Final = 'one such as { env = "NAME" } or { file = "/run/secrets/name" }'
KEEP_OUT: Final = f"a secret is kept out of the file, name where it is kept, {REFERENCE}"
# What the README's recipes have where a value of one's own belongs.
_PLACEHOLDERS: Final = ("…", "...")
_PLACEHOLDER_FAULT: Final = "still holds the README's placeholder: put a value of your own there"
_TYPES: Final = {bool: "true or false", int: "a number", float: "a number", str: "a text"} | {
    list: "a list",
    dict: "a table",
}


class Source:
    """Where values come from, and the faults found in all of its tables.

    `folder` is what relative paths are relative to. `literal_secrets`: a secret is the
    value itself, not a reference to it.
    """

    def __init__(
        self, environ: Mapping[str, str], folder: Path, *, literal_secrets: bool = False
    ) -> None:
        self.environ = environ
        self.folder = folder
        self.literal_secrets = literal_secrets
        self.secret_variables: set[str] = set()
        self.faults: list[str] = []


class Table:
    """One table. Each reading method returns None after a fault; the faults tell of it."""

    def __init__(
        self,
        raw: Mapping[str, Any],
        source: Source,
        name_of: Callable[[str], str],
        place: str = "",
    ) -> None:
        """`place` is where it stands, in words for a key that isn't shown; empty: at the top."""
        self._raw = raw
        self._source = source
        self._name_of = name_of
        self._place = place
        self._known: dict[str, None] = {}
        self._missing: dict[str, str] = {}
        self._faults = 0

    @property
    def is_faulty(self) -> bool:
        """Whether anything was wrong with it so far."""
        return self._faults > 0

    def fault(self, key: str, statement: str) -> None:
        """Note what is wrong with a key of this table."""
        self._faults += 1
        self._source.faults.append(f"{self._name_of(key)} {statement}")

    def missing(self, key: str, needed: str) -> None:
        """Note that a key is missing; taken back where it turns out to be there misspelt."""
        self.fault(key, f"is missing: {needed}")
        self._missing[key] = self._source.faults[-1]

    def has(self, key: str) -> bool:
        """Whether the key is there at all; it counts as known from now on."""
        self._known[key] = None
        return key in self._raw

    def text(self, key: str, *, needed: str | None = None, opaque: bool = False) -> str | None:
        """A text; `needed` says what to write where it is missing, None: it may be.

        `opaque`: it may be of any letters, as passwords are.
        """
        value = self._text(key, self._value(key, needed), needed)
        if value is not None and is_placeholder(value, opaque=opaque):
            self.fault(key, _PLACEHOLDER_FAULT)
            return None
        return value

    def choice(self, key: str, choices: Iterable[str], default: str) -> str:
        """One of the words; the default after a fault, too."""
        value = self.text(key)
        if value is None:
            return default
        if value not in choices:
            self.fault(key, f"{shown(value)} is not known: {meant(value, choices)}")
            return default
        return value

    def number(self, key: str, low: int, high: int) -> int | None:
        """A whole number within the bounds."""
        value = self._value(key, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            wrong = f"is {type_of(value)}: a whole number is needed, without quotes"
            if isinstance(value, float):
                wrong = f"is {value}: a whole number is needed"
            elif self._source.literal_secrets:  # a variable's value: always a text, no quotes
                wrong = "is no number: digits alone are needed"
            self.fault(key, wrong)
        elif not low <= value <= high:
            self.fault(key, f"is out of bounds: {low} to {high}")
        else:
            return value
        return None

    def numbers(self, key: str, low: int, high: int, example: str) -> tuple[int, ...] | None:
        """A list of whole numbers within the bounds, none twice."""
        value = self._value(key, None)
        if value is None:
            return None
        good = isinstance(value, list) and all(
            isinstance(one, int) and not isinstance(one, bool) and low <= one <= high
            for one in value
        )
        if not good or not value or len(set(value)) < len(value):
            self.fault(key, f"is no list of numbers from {low} to {high}, such as {example}")
            return None
        return tuple(value)

    def lines(self, key: str, most_letters: int, *, needed: str) -> str | None:
        """A text of one line or several; tabs and line breaks are the only controls in it."""
        value = self._value(key, needed)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(key, f"is {type_of(value)}: a text is needed, in quotes")
        elif not value.strip():
            self.fault(key, f"is empty: {needed}")
        elif not value.translate({9: " ", 10: " ", 13: " "}).isprintable():
            self.fault(key, "holds a control character: leave it out")
        elif len(value) > most_letters:
            self.fault(key, f"is longer than {most_letters:,} letters: shorten it")
        else:
            return value
        return None

    def flag(self, key: str) -> bool:
        """Whether it is true; false where it is missing."""
        value = self._value(key, None)
        if value is not None and not isinstance(value, bool):
            self.fault(key, f"is {type_of(value)}: true or false is needed, without quotes")
        return value is True

    def is_false(self, key: str) -> bool:
        """Whether the key says false, and is no text."""
        return self._raw.get(key) is False

    def is_text(self, key: str) -> bool:
        """Whether the value stands there itself, as a text."""
        return isinstance(self._raw.get(key), str)

    def type_of(self, key: str) -> str:
        """The type of a value that is there; true and false as they stand."""
        value = self._raw.get(key)
        return str(value).lower() if isinstance(value, bool) else type_of(value)

    def texts(
        self, key: str, *, needed: str | None = None, example: str, names: bool = False
    ) -> tuple[str, ...] | None:
        """A list of texts, none twice.

        `names`: they are somebody else's, of any letters, and one stands for a list of it.
        """
        value = self._value(key, needed)
        if value is None:
            return None
        if names and isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            self.fault(key, f"is {type_of(value)}: a list is needed, such as {example}")
            return None
        if not value:
            cure = f"such as {example}" if needed else "or leave it out"
            self.fault(key, f"is an empty list: name at least one, {cure}")
            return None
        found: dict[str, None] = {}
        for place, one in enumerate(value, start=1):
            text = self._text(f"{key}[{place}]", one, None, any_letters=names)
            if text is not None and text in found:
                self.fault(f"{key}[{place}]", "stands there a second time: leave it out")
            elif text is not None and not names and is_placeholder(text):
                self.fault(f"{key}[{place}]", _PLACEHOLDER_FAULT)
            elif text is not None:
                found[text] = None
        return tuple(found) if len(found) == len(value) else None

    def secret(self, key: str, *, needed: bool = False, literal: bool = False) -> str | None:
        """A value that is kept elsewhere, followed to it; `literal`: it may stand here, too."""
        if self._source.literal_secrets:
            return self.text(key, needed="set it" if needed else None, opaque=key != "url")
        value = self._value(key, f"name where it is kept, {REFERENCE}" if needed else None)
        if value is None:
            return None
        if isinstance(value, dict):
            return self._followed(key, value)
        if not isinstance(value, str):
            self.fault(key, f"is {type_of(value)}: a reference is needed, {REFERENCE}")
        elif literal:
            return self.text(key)
        else:
            self.fault(
                key,
                f"stands there itself: {KEEP_OUT}",
            )
        return None

    def _followed(self, key: str, reference: Mapping[str, Any]) -> str | None:
        if isinstance(reference.get("env"), str):
            self._source.secret_variables.add(reference["env"])
        try:
            value = resolved(reference, self._source.environ, self._source.folder)
        except BrokenReferenceError as error:
            self.fault(key, str(error))
            return None
        if is_placeholder(value, opaque=key != "url"):
            self.fault(key, _PLACEHOLDER_FAULT)
            return None
        return value

    def path(self, key: str) -> str | None:
        """The path of a file that can be read; a relative one begins at the file's folder."""
        value = self.text(key)
        if value is None:
            return None
        path = self._source.folder / value
        try:
            bytes_of(path, PATH_MAX_BYTES)
        except UnreadableFileError as error:
            self.fault(key, f"names the file {shown(value)}, which {error}")
            return None
        return str(path)

    def table(self, key: str) -> Table | None:
        """A table inside this one."""
        value = self._value(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(key, f"is {type_of(value)}: a table is needed, [{self._name_of(key)}]")
            return None
        name = self._name_of(key)
        return Table(value, self._source, lambda inner: f"{name}.{bare(inner)}", name)

    def tables(self, key: str, most: int) -> list[Table]:
        """The tables of a list of at most so many tables, counted from 1."""
        value = self._value(key, None)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.fault(key, f"is {type_of(value)}: write each as [[{self._name_of(key)}]]")
            return []
        if len(value) > most:
            self.fault(key, f"are {len(value):,}: at most {most:,}, put some together in lists")
            return []

        def table(name: str, one: Mapping[str, Any]) -> Table:
            return Table(one, self._source, lambda inner: f"{name}.{bare(inner)}", name)

        name = self._name_of(key)
        return [table(f"{name}[{place}]", one) for place, one in enumerate(value, start=1)]

    def names(self) -> list[str]:
        """Every key that is there, in the file's order; all count as known."""
        self._known |= dict.fromkeys(self._raw)
        return list(self._raw)

    def finish(self) -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._raw:
            if key in self._known:
                continue
            begun = key[:SHOWN_LETTERS]
            cure = meant(begun, self._known)
            if _is_key(key):
                self.fault(key, f"is not known here: {cure}")
            else:
                # it may be a secret on the wrong side of a =
                self._faults += 1
                where = f" of {self._place}" if self._place else ""
                self._source.faults.append(f"a key{where} is not known here: {cure}")
            # one mistake, one fault: what it was meant to be is not missing
            for near in nearest(begun, self._missing)[:1]:
                self._source.faults.remove(self._missing.pop(near))

    def _value(self, key: str, needed: str | None) -> Any:  # noqa: ANN401  whatever the file holds
        self._known[key] = None
        if key not in self._raw and needed is not None:
            self.missing(key, needed)
        return self._raw.get(key)

    def _text(
        self, key: str, value: object, needed: str | None, *, any_letters: bool = False
    ) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(key, f"is {type_of(value)}: a text is needed, in quotes")
        elif not value.strip():
            self.fault(key, f"is empty: {needed or 'leave it out, or fill it in'}")
        elif "\0" in value or not (any_letters or value.isprintable()):
            self.fault(key, "holds a control character or line break: write one plain line")
        elif value != value.strip() and not any_letters:
            self.fault(key, "has a space at an end: leave it out")
        elif len(value) > TEXT_MAX_LETTERS:
            self.fault(key, f"is longer than {TEXT_MAX_LETTERS} letters")
        else:
            return value
        return None


def type_of(value: object) -> str:
    """The type in the words of TOML."""
    return _TYPES.get(type(value), "a date or time")


def shown(text: str) -> str:
    """A value that is no secret, safe on one line and not too long."""
    text = visible(text)
    return repr(text if len(text) <= SHOWN_LETTERS else text[:SHOWN_LETTERS] + "…")


def bare(key: str) -> str:
    """A key as TOML would write it, safe on one line."""
    # a place in a list is ours
    name, bracket, _ = key.partition("[")
    if _is_plain(key) or (bracket and key.endswith("]") and name.isidentifier()):
        return key
    return f'"{visible(key[:SHOWN_LETTERS])}"'


def _is_plain(key: str) -> bool:
    """Whether TOML takes it without quotes."""
    return key.isascii() and key.replace("-", "x").replace("_", "x").isalnum()


def _is_key(text: str) -> bool:
    """Whether it looks like a key that somebody meant, and may be shown."""
    return _is_plain(text) and len(text) <= KEY_MAX_LETTERS


def is_placeholder(value: str, *, opaque: bool = False) -> bool:
    """Whether it was copied from the README and never filled in, such as oc_….

    `opaque`: a password, which may well end in dots; only one that is nothing else counts.
    """
    begun = value.removeprefix("whsec_")
    return begun in _PLACEHOLDERS or (not opaque and value.endswith(_PLACEHOLDERS))


def nearest(wrong: str, right: Iterable[str]) -> list[str]:
    """The one or two words that may have been meant; empty where none is near."""
    import difflib

    words = list(right)
    near = difflib.get_close_matches(wrong, words, n=2)
    # a part of a word is as good a guess as a typing error
    return near or [word for word in words if len(wrong) >= PART_LETTERS and wrong in word][:2]


def meant(wrong: str, right: Iterable[str]) -> str:
    """What to write instead: the nearest, else all there are."""
    words = list(right)
    near = nearest(wrong, words)
    if near:
        return f"did you mean {' or '.join(map(visible, near))}?"
    if not words:
        return "leave it out"
    more = ", …" if len(words) > CHOICES_SHOWN else ""
    return f"choose one of {', '.join(map(visible, words[:CHOICES_SHOWN]))}{more}"
