"""Reads channels and routes: from a file where one is named, else from variables.

A wrong set-up is refused whole, each fault with its key or line, and no value of a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.settings import DeliverySettings

FILE_VARIABLE: Final = "QUOTA_WORKER_CONFIG"


def load_delivery(environ: Mapping[str, str], file: str | None = None) -> DeliverySettings:
    """Read `file`, else the file that QUOTA_WORKER_CONFIG names, else the channels' variables.

    Raises ConfigurationError that names every fault.
    """
    path = environ.get(FILE_VARIABLE, "").strip() if file is None else file
    # an option that names nothing is no wish for the variables
    if path or file is not None:
        from worker.configuration.document import read_delivery

        return read_delivery(path, environ)
    from worker.configuration.variables import delivery_of_variables

    return delivery_of_variables(environ)
