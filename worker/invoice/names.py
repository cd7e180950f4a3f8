"""One model under its many names: providers, gateways and invoices each have their own. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from worker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT_NAMES: Final = 20_000
_MONTHS: Final = r"(?:0[1-9]|1[0-2])"
_DAYS: Final = r"(?:0[1-9]|[12]\d|3[01])"
# Ends that say which issue of a model it was: a date, a version, "latest".
_ISSUE: Final = re.compile(rf"[-@](?:20\d\d-?{_MONTHS}-?{_DAYS}|{_MONTHS}{_DAYS}|latest|v\d+:\d+)$")
_MAX_ENDS: Final = 3
_REGION: Final = re.compile(r"^(?:us|eu|apac|jp|au|ca|global)\.")
_VENDOR: Final = re.compile(
    r"^(?:anthropic|openai|meta|mistral|cohere|amazon|ai21|deepseek|google)\.(?=\D)"
)
_SEPARATORS: Final = re.compile(r"[\s._]+")


@lru_cache(maxsize=_KEPT_NAMES)
def normalised(name: str) -> str:
    """The name without provider, region and issue: ``openai/gpt-4o-2024-08-06`` is ``gpt-4o``.

    A variant behind a colon goes, too. Claude's numbers stand last: ``Claude Haiku 3.5`` and
    ``claude-3-5-haiku-20241022`` are both ``claude-haiku-3-5``.
    """
    text = name.strip().casefold().rpartition("/")[2]
    text = _VENDOR.sub("", _REGION.sub("", text))
    for _ in range(_MAX_ENDS):
        shorter = _ISSUE.sub("", text)
        if shorter == text:
            break
        text = shorter
    text = _SEPARATORS.sub("-", text.partition(":")[0]).strip("-")
    parts = text.split("-")
    if parts[0] == "claude":
        words = [part for part in parts if not part.isdigit()]
        return "-".join(words + [part for part in parts if part.isdigit()])
    return text


class Names:
    """Folds the names of both sides into those under which they are compared.

    ``pairs``: an invoice's model, or a pattern with ``*``, and what the ledger calls it.
    ``only``: patterns of the models that are compared; none: all.
    """

    def __init__(self, pairs: Sequence[str] = (), only: Sequence[str] = ()) -> None:
        self._pairs = [_pair(text) for text in pairs]
        self._only = [one.strip().casefold() for one in only]
        if not all(self._only):
            raise UsageError("--only needs a model's name, or a pattern such as gpt-*")
        self.all = not self._only

    def of_invoice(self, name: str) -> str:
        """As the ledger calls it."""
        folded = name.strip().casefold()
        for pattern, meant in self._pairs:
            if fnmatchcase(folded, pattern) or normalised(name) == normalised(pattern):
                return normalised(meant)
        return normalised(name)

    def of_ledger(self, name: str) -> str:
        """As it is compared."""
        return normalised(name)

    def wanted(self, name: str) -> bool:
        """Whether a model is compared, by its name as compared."""
        return self.all or any(
            fnmatchcase(name, one) or name == normalised(one) for one in self._only
        )


def _pair(text: str) -> tuple[str, str]:
    invoice, equals, ledger = text.partition("=")
    if not equals or not invoice.strip() or not ledger.strip():
        raise UsageError(f"--model {text!r} is not like NAME_IN_THE_INVOICE=NAME_IN_THE_LEDGER")
    return invoice.strip().casefold(), ledger.strip()
