"""One model under its many names: providers, gateways and invoices each have their own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError
from worker.status_text import clipped
from worker.untrusted import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_KEPT_NAMES: Final = 20_000
_MONTHS: Final = r"(?:0[1-9]|1[0-2])"
_DAYS: Final = r"(?:0[1-9]|[12]\d|3[01])"
# Ends that say which issue of a model it was: a date, a version, "latest".
_ISSUE: Final = re.compile(
    rf"[-@](?:20\d\d-{_MONTHS}-{_DAYS}|20\d\d{_MONTHS}{_DAYS}|latest|v\d+:\d+)$"
)
_MAX_ENDS: Final = 3
# A month and a day at the end, as these vendors write them: of others it may be a size.
_MONTH_AND_DAY: Final = re.compile(
    r"((?:gpt|chatgpt|o\d|deepseek|qwen|kimi|moonshot|glm|gemini)(?:[-\d].*)?)"
    rf"-{_MONTHS}{_DAYS}"
)
_REGION: Final = re.compile(r"^(?:us|eu|apac|jp|au|ca|global)\.")
_VENDOR: Final = re.compile(
    r"^(?:anthropic|openai|meta|mistral|cohere|amazon|ai21|deepseek|google)\.(?=\D)"
)
_SEPARATORS: Final = re.compile(r"[\s._]+")
_ANYTHING: Final = "*"


@lru_cache(maxsize=_KEPT_NAMES)
def normalised(name: str) -> str:
    """The name without provider, region and issue: ``openai/gpt-4o-2024-08-06`` is ``gpt-4o``.

    A variant behind a colon goes, too. Claude's numbers stand last: ``Claude Haiku 3.5`` and
    ``claude-3-5-haiku-20241022`` are both ``claude-haiku-3-5``.
    """
    text = _without_provider(name.strip().casefold())
    text = _without_issue(text)
    parts = text.split("-")
    if parts[0] == "claude":
        words = [part for part in parts if not part.isdigit()]
        return "-".join(words + [part for part in parts if part.isdigit()])
    return text


def _without_provider(name: str) -> str:
    return _VENDOR.sub("", _REGION.sub("", name.rpartition("/")[2]))


def _without_issue(text: str) -> str:
    for _ in range(_MAX_ENDS):
        shorter = _ISSUE.sub("", text)
        if shorter == text:
            break
        text = shorter
    return _SEPARATORS.sub("-", text.partition(":")[0]).strip("-")


def fits(text: str, pattern: str) -> bool:
    """Whether a text is like a pattern, in which ``*``, and nothing else, stands for anything."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


def names_model(pattern: str, name: str) -> bool:
    """Whether a pattern means a model: by its name as it is written, or as normalised."""
    told = pattern.strip().casefold()
    if _ANYTHING not in told:
        return bool(normalised(told)) and normalised(name) == normalised(told)
    folded = _SEPARATORS.sub("-", told)
    return any(fits(one, told) or fits(one, folded) for one in _spellings(name))


@lru_cache(maxsize=_KEPT_NAMES)
def _spellings(name: str) -> frozenset[str]:
    """A name as it is written, without its provider, without its issue, and as normalised."""
    written = name.strip().casefold()
    bare = _without_provider(written)
    folded = (_SEPARATORS.sub("-", one) for one in (written, bare))
    return frozenset({written, bare, *folded, _without_issue(bare), normalised(name)})


@dataclass(frozen=True, slots=True)
class Matching:
    """The names of both sides, each with the one under which it is compared; "": none.

    ``chosen``: those that are compared, None: all.
    """

    invoice: Mapping[str, str]
    ledger: Mapping[str, str]
    chosen: frozenset[str] | None = None

    def of_invoice(self, name: str) -> str | None:
        """What an invoice's model is compared as; None: it isn't compared."""
        return self._wanted(self.invoice[name])

    def of_ledger(self, name: str) -> str | None:
        """What a model of the ledger is compared as; None: it isn't compared."""
        return self._wanted(self.ledger[name])

    def chosen_ledger(self) -> list[str]:
        """The ledger's names that are compared, as they are written."""
        return sorted(name for name in self.ledger if self.of_ledger(name) is not None)

    def _wanted(self, name: str) -> str | None:
        return name if self.chosen is None or name in self.chosen else None


class Names:
    """How the names of both sides are to be matched.

    ``pairs``: an invoice's model, or a pattern with ``*``, and what the ledger calls it.
    ``only``: patterns of the models that are compared; none: all.
    """

    def __init__(self, pairs: Sequence[str] = (), only: Sequence[str] = ()) -> None:
        self._pairs = [_pair(text) for text in pairs]
        self._only = [one.strip() for one in only]
        if not all(self._only):
            raise UsageError("--only needs a model's name, or a pattern such as gpt-*")
        self.all = not self._only

    def match(self, invoice: Iterable[str], ledger: Iterable[str]) -> Matching:
        """All names of the invoice's month and of the ledger's.

        A model is compared if a pattern means it by any of its names, on either side. Raises
        UsageError for patterns that mean none, all of them by name.
        """
        theirs = {name: self._of_invoice(name) for name in invoice}
        ours = {name: normalised(name) for name in ledger}
        lost = [
            f"--model {_shown(pattern)} is no model of the invoice"
            for pattern, _ in self._pairs
            if not any(names_model(pattern, name) for name in theirs)
        ]
        short = _issues({*theirs.values(), *ours.values()})
        theirs = {name: short(compared) for name, compared in theirs.items()}
        ours = {name: short(compared) for name, compared in ours.items()}
        if self.all:
            chosen = None
        else:
            meant = {
                pattern: {
                    compared
                    for side in (theirs, ours)
                    for name, compared in side.items()
                    if names_model(pattern, name) or names_model(pattern, compared)
                }
                for pattern in self._only
            }
            lost += [
                f"--only {_shown(pattern)} is no model, neither of the invoice nor of the ledger"
                for pattern, found in meant.items()
                if not found
            ]
            chosen = frozenset().union(*meant.values())
        if lost:
            raise UsageError("\n".join([f"{lost[0]}: nothing was compared", *lost[1:]]))
        return Matching(theirs, ours, chosen)

    def _of_invoice(self, name: str) -> str:
        """By the first pair that has it as it is written, else by the first that means it."""
        told = name.strip().casefold()
        written = [meant for pattern, meant in self._pairs if fits(told, pattern.casefold())]
        meant = (meant for pattern, meant in self._pairs if names_model(pattern, name))
        return normalised(next(iter(written), None) or next(meant, name))


def _issues(names: set[str]) -> Callable[[str], str]:
    """Takes a month and a day off a name where the name without them is there, too."""

    def short(name: str) -> str:
        found = _MONTH_AND_DAY.fullmatch(name)
        return found[1] if found and found[1] in names else name

    return short


def _pair(text: str) -> tuple[str, str]:
    invoice, equals, ledger = text.partition("=")
    if not equals or not invoice.strip() or not ledger.strip():
        raise UsageError(f"--model {text!r} is not like NAME_IN_THE_INVOICE=NAME_IN_THE_LEDGER")
    return invoice.strip(), ledger.strip()


def _shown(text: str) -> str:
    return f"'{clipped(visible(text))}'"
