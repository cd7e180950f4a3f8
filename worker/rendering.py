"""Messages from facts: Jinja2 templates by kind, channel and language.

A kind is a folder of `templates/`: its `line` and `details` in each language say what
happened. Each family of channels puts them into the same frame for every kind,
`frame/<family>.<part>.j2`, unless the kind has one of its own; the part says how untrusted
text is made safe there (`txt` for chats, `term` for terminals, `title` and `md`
for cards, `html` for mails), but for families with ways of their own. Every value that a
template shows goes through that, unless one of our own filters made it. An unknown
variable is an error, never an empty space.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from worker import untrusted
from worker.errors import AssetMissingError, QuotaWorkerError
from worker.money import format_nanos
from worker.periods import load_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from jinja2 import Environment

    from worker.assets import Assets
    from worker.models import OutboxMessage

LANGUAGES: Final = ("en", "zh-CN")
LINES_KEPT: Final = 2_000
# A forecast that is nearer than this is no time of day to name.
SOON: Final = timedelta(minutes=10)
TEN: Final = 10
SEVERITIES: Final = ("exhausted", "protected", "downgrade", "warning", "available")
_ESCAPES: Final[Mapping[str, Callable[[str], str]]] = {
    "txt": untrusted.for_chat_text,
    "term": untrusted.for_terminal,
    "title": untrusted.for_card_title,
    "md": untrusted.for_card_markdown,
    "html": untrusted.for_html,
}
# A mail's text pings nobody, nor does what a program reads, and their addresses are to be
# copied; Apprise's titles go to chats.
_FAMILY_ESCAPES: Final[Mapping[tuple[str, str], Callable[[str], str]]] = {
    ("email", "txt"): untrusted.visible,
    ("email", "title"): untrusted.for_mail_subject,
    ("webhook", "txt"): untrusted.visible,
    ("apprise", "title"): untrusted.for_chat_text,
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
        self._environments: dict[Callable[[str], str], Environment] = {}
        self._lines: dict[tuple[OutboxMessage, str, str], Trusted] = {}

    def warm_up(self) -> None:
        """Import Jinja2 now, not with the first message."""
        self._environment(untrusted.for_chat_text)

    def render(self, message: OutboxMessage, family: str, part: str) -> str:
        """One part of a message in its language, without white space at the ends.

        Raises RenderingError, with the template's name but no value out of the facts.
        """
        names = [f"{message.kind}/{family}.{part}.j2", f"frame/{family}.{part}.j2"]
        escape = _escape(family, part)
        return self._rendered(names, escape, message.kind, _language(message), _alert(message))

    def render_digest(self, messages: Sequence[OutboxMessage], family: str, part: str) -> str:
        """One part of a digest, in the language of the first message. Raises RenderingError.

        A message whose line can't be rendered still has one, with what is known of it.
        """
        names = [f"digest/{family}.{part}.j2", f"frame/{family}.{part}.j2"]
        counts = Counter(message.severity for message in messages)
        lines = [self.render_line(message, part, family) for message in messages]
        view = {
            "count": len(messages),
            "severities": [(one, counts[one]) for one in SEVERITIES if counts[one]],
            "lines": lines,
            "told": [(one.severity, line) for one, line in zip(messages, lines, strict=True)],
            "undelivered": _undelivered(messages),
        }
        escape = _escape(family, part)
        return self._rendered(names, escape, "digest", _language(messages[0]), lambda: view)

    def render_line(self, message: OutboxMessage, part: str, family: str = "") -> Trusted:
        """The message in one line, escaped for this part; never raises for its facts.

        Kept, as finding how many lines a digest holds asks for the same ones many times.
        """
        key = (message, family, part)
        if key not in self._lines:
            if len(self._lines) >= LINES_KEPT:
                self._lines.clear()
            self._lines[key] = self._line(message, part, family)
        return self._lines[key]

    def _line(self, message: OutboxMessage, part: str, family: str) -> Trusted:
        escape, language = _escape(family, part), _language(message)
        names = [f"{message.kind}/line.{language}.j2"]
        try:
            line = self._rendered(names, escape, message.kind, language, _alert(message))
        except RenderingError:
            names = [f"digest/unshown.{language}.j2"]
            view = {"message_id": message.message_id}
            line = self._rendered(names, escape, message.kind, language, lambda: view)
        return Trusted(line)

    def _rendered(
        self,
        names: Sequence[str],
        escape: Callable[[str], str],
        kind: str,
        language: str,
        view: Callable[[], dict[str, Any]],
    ) -> str:
        from jinja2 import TemplateError

        try:
            template = self._environment(escape).select_template(names)
            return template.render(view(), kind=kind, language=language).strip()
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RenderingError(f"{names[0]} failed: {_fault(error)}") from error
        except AssetMissingError as error:
            raise RenderingError(str(error)) from error

    def _environment(self, escape: Callable[[str], str]) -> Environment:
        if escape not in self._environments:
            from jinja2 import Environment, FileSystemLoader, StrictUndefined

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
            self._environments[escape] = environment
        return self._environments[escape]


def _escape(family: str, part: str) -> Callable[[str], str]:
    return _FAMILY_ESCAPES.get((family, part)) or _ESCAPES[part]


def _fault(error: Exception) -> str:
    """What is wrong with template or facts, without a value out of them."""
    from jinja2 import TemplateNotFound, TemplateSyntaxError, UndefinedError

    if isinstance(error, TemplateNotFound):
        return "there is no such template"
    if isinstance(error, TemplateSyntaxError):
        return f"its line {error.lineno} is no valid template"
    if isinstance(error, (LookupError, UndefinedError)):
        return "the message lacks a fact that it shows"
    return "the message's facts have another shape"


def _alert(message: OutboxMessage) -> Callable[[], dict[str, Any]]:
    return lambda: {"alert": alert_view(message.facts)}


def _undelivered(messages: Sequence[OutboxMessage]) -> list[tuple[str, str, int]]:
    """Of those told here because another channel failed: channel, cause, how many."""
    failures: Counter[tuple[str, str]] = Counter()
    for message in messages:
        # facts that can't be read are seen by the message's own line
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            told = json.loads(message.facts)["undelivered"]
            failures[str(told["channel"]), str(told["cause"])] += 1
    return [(channel, cause, number) for (channel, cause), number in failures.most_common()]


def _language(message: OutboxMessage) -> str:
    return message.locale if message.locale in LANGUAGES else LANGUAGES[0]


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
    decided = datetime.fromisoformat(view["decided_at"]) if "decided_at" in view else None
    view["dimensions"] = [
        _dimension_view(one, zone, currency)
        | {"expected_soon": _is_soon(one["expected_at"], decided)}
        for one in view["dimensions"]
    ]
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
    view["decided"] = _moment(view["decided_at"], zone) if "decided_at" in view else None
    if "groups" in view:
        view |= _missing_view(view, currency)
    if "callers" in view:
        view["callers"] = [one | _caller_view(one, currency) for one in view["callers"]]
    if "findings" in view:
        view |= _runaway_view(view, currency)
    if "total_cost_nanos" in view:
        view |= _report_view(view, currency)
    return view


def _report_view(view: Mapping[str, Any], currency: str) -> dict[str, Any]:
    """A month's report in a line; ``department_argument`` is its id as a shell's word."""
    return {
        "month": Trusted(f"{date.fromisoformat(view['month'] + '-01'):%Y-%m}"),
        "completions": _grouped(view["completions"]),
        "tokens": _grouped(view["tokens"]),
        "cost": _money(view["cost_nanos"], currency),
        "total_cost": _money(view["total_cost_nanos"], currency),
        "changed": _grouped(len(view["changes"])),
        "department_argument": shlex.quote(view["department_id"]),
    }


def _missing_view(view: Mapping[str, Any], currency: str) -> dict[str, Any]:
    """The figures of requests without usage, of all groups and of each that is listed."""

    def figures(one: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "requests": _grouped(one["requests"]),
            "missing": _grouped(one["missing"]),
            "tokens": _grouped(one["tokens"]),
            "cost": _money(one["cost_nanos"], currency),
            "share": Trusted(f"{Decimal(one['missing']) * 100 / Decimal(one['requests']):.1f}"),
        }

    others = view["group_count"] - len(view["groups"])
    return figures(view) | {
        "uncharged": _grouped(view["uncharged"]),
        "others": _grouped(others) if others else None,
        "groups": [one | figures(one) for one in view["groups"]],
    }


def _caller_view(one: Mapping[str, Any], currency: str) -> dict[str, Any]:
    """What an app or key brought in the last hour."""
    share = one.get("share_pct")
    return {
        "requests": _grouped(one["requests"]),
        "tokens": _grouped(one["tokens"]),
        "cost": _money(one["cost_nanos"], currency),
        "share": None if share is None else Trusted(f"{share}"),
    }


def _runaway_view(view: Mapping[str, Any], currency: str) -> dict[str, Any]:
    """Apps and keys that run away: the sums of all, and the figures of each that is listed."""

    def finding(one: Mapping[str, Any]) -> dict[str, Any]:
        present, usual = one["present"], one["usual"]
        is_cost = one["figure"] == "cost"
        minutes = one["usual_minutes"]
        return _caller_view(one, currency) | {
            "present": _money(present, currency) if is_cost else _grouped(present),
            "usual": usual and (_money(usual, currency) if is_cost else _grouped(usual)),
            "times": _times(Decimal(present) / Decimal(usual)) if usual else None,
            "recent": _grouped(one["recent"]),
            "same_pct": Trusted(f"{Decimal(one['same']) * 100 / Decimal(one['recent']):.0f}"),
            "same_in_tokens": _grouped(one["same_in_tokens"]),
            "usual_minutes": None if minutes is None else _times(minutes),
            "end_users": _grouped(one["end_users"]) if one["end_users"] else None,
            "key_count": _grouped(one["key_count"]) if one.get("key_count") else None,
        }

    count, listed = view["finding_count"], len(view["findings"])
    return _caller_view(view, currency) | {
        "others": _grouped(count - listed) if count > listed else None,
        "others_than_first": _grouped(count - 1) if count > 1 else None,
        "findings": [one | finding(one) for one in view["findings"]],
    }


def _dimension_view(one: dict[str, Any], zone: ZoneInfo, currency: str) -> dict[str, Any]:
    def amount(value: int) -> Trusted:
        return _money(value, currency) if one["dimension"] == "cost" else _grouped(value)

    def moment(value: str | None) -> Trusted | None:
        return None if value is None else _moment(value, zone)

    paces: dict[str, Trusted] = {
        name: amount(one[name]) for name in ("pace", "short_pace") if name in one
    }
    if "times_even" in one:
        paces["times_even"] = _times(one["times_even"])
    return (
        one
        | paces
        | {
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
    )


def _is_soon(expected_at: str | None, decided: datetime | None) -> bool:
    if expected_at is None or decided is None:
        return False
    return datetime.fromisoformat(expected_at) - decided < SOON


def _moment(value: str, zone: ZoneInfo) -> Trusted:
    local = datetime.fromisoformat(value).astimezone(zone)
    return Trusted(f"{local:%Y-%m-%d %H:%M} {zone.key}")


def _grouped(value: Decimal | int) -> Trusted:
    return Trusted(f"{int(value):,}")


def _times(value: Decimal | int) -> Trusted:
    """One decimal below ten, none from there on; cut, so that no rule seems broken before it is."""
    tenths = int(Decimal(value) * 10)
    whole = tenths // 10
    return Trusted(f"{whole:,}" if whole >= TEN or tenths % 10 == 0 else f"{whole}.{tenths % 10}")


def _money(value: Decimal | int, currency: str) -> Trusted:
    """Unrounded, thousands grouped."""
    amount, _, code = format_nanos(int(value), currency).partition(" ")
    whole, _, rest = amount.partition(".")
    return Trusted(f"{int(whole):,}.{rest} {code}")
