"""What the forms need beside the worker's own packages."""

from __future__ import annotations

from typing import Final

from worker import __version__

PACKAGE_CURE: Final = (
    f"install the wheel with its extra, 'quota_worker-{__version__}-py3-none-any.whl[report]'"
    " (in a clone: .venv/bin/pip install -e '.[report]')"
)
