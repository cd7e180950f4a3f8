"""Which department a file means: ids exactly as they are, and what may be meant by others."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from worker.outcomes.shape import USUAL_METRICS, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_COMPARED: Final = 5_000
MAX_SUGGESTED: Final = 3
FORMULA_STARTS: Final = ("=", "+", "-", "@")


class Departments:
    """The known departments: names by id."""

    def __init__(self, names: Mapping[str, str | None]) -> None:
        self._names = names
        self._advice: dict[str, str] = {}

    def find(self, text: str, *, advise: bool = True) -> str:
        """The id, spaces around it left out. Raises ValueError; with advice if wanted."""
        if text in self._names:
            return text
        bare = text.strip()
        if bare in self._names:
            return bare
        # what keeps spreadsheets from taking it for a formula, as the template has it
        if bare.startswith("'") and bare[1:].startswith(FORMULA_STARTS) and bare[1:] in self._names:
            return bare[1:]
        if not bare:
            raise ValueError("the department is empty: write its id")
        raise ValueError(self._unknown(bare) if advise else "an unknown department")

    def _unknown(self, text: str) -> str:
        if text not in self._advice:
            self._advice[text] = f"there is no department {shown(text)}{self._meant(text)}"
        return self._advice[text]

    def _meant(self, text: str) -> str:
        wanted = text.casefold()
        if named := [one for one, name in self._names.items() if (name or "").casefold() == wanted]:
            return f": that is the name of {', '.join(map(shown, named[:MAX_SUGGESTED]))}"
        plain = wanted.lstrip("0")
        near = [one for one in self._names if one.casefold().lstrip("0") == plain] if plain else []
        if not near:
            some = {one.casefold(): one for one in list(self._names)[:MAX_COMPARED]}
            near = [some[one] for one in get_close_matches(wanted, some, n=MAX_SUGGESTED)]
        if near:
            return f": did you mean {' or '.join(map(shown, near[:MAX_SUGGESTED]))}?"
        if not self._names:
            return ": there are none yet, see README, Limits, zone, currency"
        return ": quota-worker outcomes template shows all"


def like_metric(name: str, known: Collection[str]) -> str | None:
    """The metric that may be meant by a name that is new."""
    near = get_close_matches(name, sorted({*known, *USUAL_METRICS} - {name}), n=1, cutoff=0.8)
    return near[0] if near else None
