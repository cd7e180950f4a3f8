"""The Prometheus text format, version 0.0.4. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from decimal import Decimal

# Names are untrusted: these are what the format gives a meaning within a label's quotes.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Exposition:
    """Families in the order in which they are begun; one without a sample isn't written."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, dict[str, str]]] = {}

    def family(self, name: str, kind: Literal["gauge", "counter"], text: str) -> Family:
        """Begin a family. Raises ValueError for a name that is there already."""
        if name in self._families:
            raise ValueError(f"{name} is there already")
        head = f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"
        samples: dict[str, str] = {}
        self._families[name] = (head, samples)
        return Family(name, samples)

    def text(self) -> str:
        """The document, with a line break at its end."""
        return "".join(
            head + "".join(f"{series} {value}\n" for series, value in samples.items())
            for head, samples in self._families.values()
            if samples
        )


class Family:
    """Samples of one name; a value of None is unknown, and absent."""

    def __init__(self, name: str, samples: dict[str, str]) -> None:
        self._name = name
        self._samples = samples

    def add(self, value: float | Decimal | None, **labels: str) -> None:
        """One sample. Raises ValueError for a series that has one."""
        if value is None:
            return
        inner = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        series = f"{self._name}{{{inner}}}" if inner else self._name
        if series in self._samples:
            raise ValueError(f"{series} has a value already")
        self._samples[series] = _number(value)


def _number(value: float | Decimal) -> str:
    """Whole numbers in full; others as the shortest text of the nearest double."""
    if value == int(value):
        return str(int(value))
    return repr(float(value))
