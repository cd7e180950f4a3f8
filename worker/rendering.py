"""Messages from facts: Jinja2 templates by kind, channel and language.

A template is `templates/<kind>/<channel>.<language>.<part>.j2`; its part says how
untrusted text is made safe there (`txt` for chats, `term` for terminals, `title` and `md`
for cards). Every value that a template shows goes through that, unless one of our own
filters made it. An unknown variable is an error, never an empty space.
"""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from worker import untrusted
from worker.errors import AssetMissingError, QuotaWorkerError
from worker.money import format_nanos
from worker.periods import load_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from zoneinfo import ZoneInfo

    from jinja2 import Environment

    from worker.assets import Assets
    from worker.models import OutboxMessage

LANGUAGES: Final = ("en", "zh-CN")
_ESCAPES: Final[Mapping[str, Callable[[str], str]]] = {
    "txt": untrusted.for_chat_text,
    "term": untrusted.for_terminal,
    "title": untrusted.for_card_title,
    "md": untrusted.for_card_markdown,
}


class RenderingError(QuotaWorkerError):
    """A message could not be rendered: see the template it names."""


class Trusted(str):
    """Text that a filter of ours made: shown as it is."""

    __slots__ = ()


class Renderer:
    """Renders the parts of messages. Jinja2 is imported with the first one."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._environments: dict[str, Environment] = {}

    def render(self, message: OutboxMessage, channel: str, part: str) -> str:
        """One part of a message in its language, without white space at the ends.

        Raises RenderingError, with the template's name but no value out of the facts.
        """
        from jinja2 import TemplateError

        language = message.locale if message.locale in LANGUAGES else LANGUAGES[0]
        name = f"{message.kind}/{channel}.{language}.{part}.j2"
        try:
            template = self._environment(part).get_template(name)
            return template.render(alert=alert_view(message.facts)).strip()
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RenderingError(f"{name} failed: {type(error).__name__}") from error
        except AssetMissingError as error:
            raise RenderingError(str(error)) from error

    def _environment(self, part: str) -> Environment:
        if part not in self._environments:
            from jinja2 import Environment, FileSystemLoader, StrictUndefined

            escape = _ESCAPES[part]

            def shown(value: object) -> object:
                if isinstance(value, Trusted) or not isinstance(value, str):
                    return value
                return escape(value)

            environment = Environment(
                loader=FileSystemLoader(self._assets.path("templates")),
                undefined=StrictUndefined,
                finalize=shown,
                trim_blocks=True,
                lstrip_blocks=True,
                autoescape=False,  # noqa: S701  finalize escapes for the channel, not for HTML
            )
            environment.filters |= {"list_names": _joiner(escape), "shell": _argument}
            self._environments[part] = environment
        return self._environments[part]


def _joiner(escape: Callable[[str], str]) -> Callable[[list[str]], Trusted]:
    def list_names(names: list[str]) -> Trusted:
        return Trusted(", ".join(escape(name) for name in names))

    return list_names


def _argument(name: str) -> str:
    """The name as one word of a shell's command line, and no option of the command's."""
    return f"{'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


def alert_view(facts: str) -> dict[str, Any]:
    """An alert's facts (JSON text) with its figures as text; names stay untrusted.

    Raises ValueError, LookupError or TypeError for facts of another shape.
    """
    view: dict[str, Any] = json.loads(facts, parse_float=Decimal)
    zone = load_zone(view["zone"])
    currency = view["currency"]
    view["dimensions"] = [_dimension_view(one, zone, currency) for one in view["dimensions"]]
    view["told"] = [one for one in view["dimensions"] if one["crossed"]]
    full = [one for one in view["dimensions"] if one["is_full"]]
    view["refused_until"] = (
        max(full, key=lambda one: one["resets_on"])["resets_at"] if full else None
    )
    view["top_apps"] = [
        one
        | {
            "tokens": _grouped(one["tokens"]),
            "cost": _money(one["cost_nanos"], currency),
            "share": Trusted(f"{one['share_pct']}"),
        }
        for one in view["top_apps"] or []
    ]
    view.setdefault("undelivered", None)
    return view


def _dimension_view(one: dict[str, Any], zone: ZoneInfo, currency: str) -> dict[str, Any]:
    def amount(value: int) -> Trusted:
        return _money(value, currency) if one["dimension"] == "cost" else _grouped(value)

    def moment(value: str | None) -> Trusted | None:
        return None if value is None else _moment(value, zone)

    return one | {
        "key": f"{one['period_kind']}_{one['dimension']}",
        "used": amount(one["used"]),
        "cap": amount(one["cap"]),
        "held": amount(one["held"]) if one["held"] else None,
        "pct": Trusted(f"{Decimal(one['pct']):.1f}"),
        "is_full": Decimal(one["used"]) >= Decimal(one["cap"]),
        "resets_on": datetime.fromisoformat(one["resets_at"]),
        "resets_at": moment(one["resets_at"]),
        "refused_at": moment(one["refused_at"]),
        "expected_at": moment(one["expected_at"]),
        "period_start": Trusted(one["period_start"]),
    }


def _moment(value: str, zone: ZoneInfo) -> Trusted:
    local = datetime.fromisoformat(value).astimezone(zone)
    return Trusted(f"{local:%Y-%m-%d %H:%M} {zone.key}")


def _grouped(value: Decimal | int) -> Trusted:
    return Trusted(f"{int(value):,}")


def _money(value: Decimal | int, currency: str) -> Trusted:
    """Unrounded, thousands grouped."""
    amount, _, code = format_nanos(int(value), currency).partition(" ")
    whole, _, rest = amount.partition(".")
    return Trusted(f"{int(whole):,}.{rest} {code}")
