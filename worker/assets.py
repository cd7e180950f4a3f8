"""Finds the files that stand outside the package: `sql/`, `templates/`.

In a checkout they lie beside `worker/`; a wheel carries them in
`worker/_assets/`.
"""

from __future__ import annotations

from pathlib import Path

from worker.errors import AssetMissingError

_PACKAGE = Path(__file__).resolve().parent


class Assets:
    """One tree of assets, read on demand. `root` is for tests with trees of their own."""

    def __init__(self, root: Path | None = None) -> None:
        if root is None:
            packed = _PACKAGE / "_assets"
            root = packed if packed.is_dir() else _PACKAGE.parent
        self.root = root

    def path(self, relative: str) -> Path:
        """The file's path; raises AssetMissingError if it isn't there."""
        path = self.root / relative
        if not path.exists():
            raise AssetMissingError(f"{relative} is missing: install quota-worker again")
        return path

    def read(self, relative: str) -> str:
        """The file's text (UTF-8)."""
        return self.path(relative).read_text(encoding="utf-8")

    def sql_files(self, folder: str) -> list[Path]:
        """The `*.sql` of `sql/<folder>`, by name; an absent folder has none."""
        return sorted((self.root / "sql" / folder).glob("*.sql"))
