"""What the environment says. Pure: a mapping in, frozen values out.

A configuration file will be read here too; what it may hold is checked in this
room, so that a wrong set-up is refused whole, each fault named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The process's settings. Secrets never show in a repr.

    `postgres_dsn` None: the embedded server is used, which stops with its last
    user unless `keep_server`. The channels' own values are None where unset.
    """

    postgres_dsn: str | None = field(default=None, repr=False)
    keep_server: bool = False
    imbot_command: str = "imbot"
    imbot_group: str | None = None
    feishu_webhook: str | None = field(default=None, repr=False)
    feishu_secret: str | None = field(default=None, repr=False)
    feishu_keyword: str | None = None


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read POSTGRES_DSN and QUOTA_WORKER_*; an empty value counts as unset.

    Raises ConfigurationError that names every variable that is wrong.
    """
    faults: list[str] = []

    def text(name: str) -> str | None:
        return environ.get(name, "").strip() or None

    def flag(name: str) -> bool:
        value = (text(name) or "").lower()
        if value not in _YES | _NO:
            faults.append(f"{name} is neither 1 nor 0")
        return value in _YES

    dsn = text("POSTGRES_DSN")
    if dsn is not None and not dsn.startswith(("postgresql://", "postgres://")):
        # no user@ in the example: messages are redacted, and it would be eaten
        faults.append("POSTGRES_DSN must look like postgresql://host:5432/database?user=name")
    settings = Settings(
        postgres_dsn=dsn,
        keep_server=flag("QUOTA_WORKER_KEEP_SERVER"),
        imbot_command=text("QUOTA_WORKER_IMBOT_COMMAND") or "imbot",
        imbot_group=text("QUOTA_WORKER_IMBOT_GROUP"),
        feishu_webhook=text("QUOTA_WORKER_FEISHU_WEBHOOK"),
        feishu_secret=text("QUOTA_WORKER_FEISHU_SECRET"),
        feishu_keyword=text("QUOTA_WORKER_FEISHU_KEYWORD"),
    )
    if faults:
        raise ConfigurationError("; ".join(faults))
    return settings
