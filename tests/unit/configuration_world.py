"""Configuration files to begin with, and what must not be shown of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.configuration import load_delivery
from worker.errors import ConfigurationError
from worker.settings import DeliverySettings
from worker.telemetry import redact

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quota-worker.toml"
SECRET = "s3cr3t-never-shown"  # noqa: S105  looked for where it must not be
URL = f"https://open.feishu.cn/open-apis/bot/v2/hook/{SECRET}"
KEY = "whsec_bmV2ZXItc2hvd24tczNjcjN0LW5ldmVyLXNob3du"
ENVIRON = {
    "FEISHU_OPS_URL": URL,
    "FEISHU_OPS_SECRET": SECRET,
    "FEISHU_APP_SECRET_OF_OURS": SECRET,
    "PAGER_SECRET": KEY,
    "GATEWAY_DSN": f"postgresql://reader:{SECRET}@db.example.com/gateway",
    "USAGE_API": f"Bearer {SECRET}",
    "EMPTY": " ",
    "HOOK": "https://open.feishu.cn/open-apis/bot/v2/hook/…",
    "WECOM": "wecombot://…",
    "WHSEC": "whsec_…",
    "DOTS": "...",
    "DOTTED": "a password that ends in dots...",
    "TWO_LINES": f"{SECRET}\n{SECRET}",
    "PLAIN": f"http://relay.example.com/{SECRET}",
}

OPS = '[channels.ops]\nkind = "feishu-webhook"\nurl = { env = "FEISHU_OPS_URL" }\n'
MAIL = (
    '[channels.mail]\nkind = "email"\nhost = "smtp.example.com"\nsender = "q@example.com"\n'
    'to = ["ops@example.com"]\n'
)
BOTH = OPS + MAIL + '[default]\nchannels = ["ops", "mail"]\n'


def read(folder: Path, text: str | bytes, **environ: str) -> DeliverySettings:
    file = folder / "quota-worker.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_delivery(ENVIRON | environ, str(file))


def faults_of(folder: Path, text: str | bytes) -> list[str]:
    """Each fault of a wrong file, without the file's name; nothing secret is among them."""
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text)
    told = str(caught.value)
    assert SECRET not in told
    assert redact(told) == told  # as the cli shows it: no advice is taken for a secret
    first, *lines = told.splitlines()
    file = f"{folder / 'quota-worker.toml'} is not used"
    assert first.startswith(file), first
    if not lines:
        return [first.removeprefix(f"{file}: ")]
    assert first == f"{file}, it has {len(lines)} faults:"
    return [line.removeprefix("  ") for line in lines]
