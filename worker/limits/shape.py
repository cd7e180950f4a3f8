"""What a file of limits is made of: the columns that it may name, and how each is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from worker.errors import UsageError
from worker.limits.lines import place_of

if TYPE_CHECKING:
    from worker.limits.lines import Lines, Path

FORMAT_VERSION: Final = 1
INT_MAX: Final = 2_147_483_647
BIGINT_MAX: Final = 9_223_372_036_854_775_807
REAL_MAX: Final = 10**15
TEXT_MAX: Final = 200
LIST_MAX: Final = 1_000
UNLIMITED: Final = "unlimited"
ANY: Final = "any"
ENVIRONMENTS: Final = ("production", "test")
LOCALES: Final = ("en", "zh-CN")
TENANT: Final = "tenant"
DEPARTMENT: Final = "department"
BUDGET: Final = "budget"

Value = int | float | str | list[str] | None
Row = dict[str, Any]


class RefusedLimitsError(UsageError):
    """The file of limits is wrong, and nothing was changed."""

    # what it quotes are names to be looked for in the file
    redacted = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column and the values that it takes.

    `sort`: whole, real, word (one of `words`), text, texts (a list), models (a list).
    `null`: how NULL is written in a file; None: the column always has a value.
    `text` of a word or text: whether NULL is the empty text.
    """

    name: str
    sort: str
    low: int = 0
    high: int = BIGINT_MAX
    null: str | None = None
    words: tuple[str, ...] = ()


def _cap(name: str, high: int = BIGINT_MAX) -> Column:
    return Column(name, "whole", 0, high, null=UNLIMITED)


TENANT_COLUMNS: Final = (
    Column("department_id", "text", null=""),
    Column("environment", "word", words=ENVIRONMENTS),
    Column("enforce", "word", words=("on", "observe", "off")),
    _cap("daily_completions", INT_MAX),
    _cap("daily_input_tokens"),
    _cap("daily_output_tokens"),
    _cap("daily_tokens"),
    _cap("daily_cost_cents"),
    _cap("monthly_completions"),
    _cap("monthly_tokens"),
    _cap("monthly_cost_cents"),
    Column("bucket_capacity", "real", 0, REAL_MAX),
    Column("bucket_refill_per_sec", "real", 0, REAL_MAX),
    Column("soft_warn_pct", "whole", 0, 100),
    Column("stale_policy", "word", words=("estimate", "partial", "release")),
    Column("reservation_ttl_seconds", "whole", 1, 86_400),
    Column("locale", "word", null="", words=LOCALES),
)
DEPARTMENT_COLUMNS: Final = (
    Column("name", "text", null=""),
    Column("locale", "word", null="", words=LOCALES),
    Column("owner_emails", "texts"),
    Column("finance_emails", "texts"),
)
BUDGET_COLUMNS: Final = (
    _cap("monthly_tokens"),
    _cap("monthly_cost_cents"),
    Column("warn_pct", "whole", 1, 100),
    Column("downgrade_pct", "whole", 1, 100),
    Column("protect_pct", "whole", 1, 100),
    Column("downgrade_from", "models", null=ANY),
    Column("downgrade_model", "text", null=""),
    Column("allowed_models", "models", null=ANY),
)
COLUMNS: Final = {
    TENANT: {one.name: one for one in TENANT_COLUMNS},
    DEPARTMENT: {one.name: one for one in DEPARTMENT_COLUMNS},
    BUDGET: {one.name: one for one in BUDGET_COLUMNS},
}
# Departments before what names them.
ORDER: Final = (DEPARTMENT, BUDGET, TENANT)
# What the database gives a row that says nothing of it, where judging needs it.
BUDGET_DEFAULTS: Final = {"warn_pct": 75, "downgrade_pct": 90, "protect_pct": 98}


@dataclass(frozen=True, slots=True)
class Key:
    """Whose row: a tenant's, a department's, or a department's budget in an environment."""

    kind: str
    subject: str
    environment: str = ""

    @property
    def order(self) -> tuple[int, str, str]:
        """Departments, budgets, tenants; each by name."""
        return (ORDER.index(self.kind), self.subject, self.environment)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file says of one row: columns by name, or that it goes; `path`: of its table."""

    key: Key
    columns: dict[str, Value] = field(default_factory=dict)
    is_removed: bool = False
    path: Path = ()
    lines: Lines | None = None

    @property
    def place(self) -> str:
        """For people, `line 12, tenants.acme`: looked for when asked, since that takes its time."""
        return place_of(self.lines, self.path)


def text_fault(text: str, *, may_be_empty: bool = True) -> str | None:
    """What is wrong with a name or text; None: nothing."""
    if not text and not may_be_empty:
        return "is empty: write a name"
    if len(text) > TEXT_MAX:
        return f"is longer than {TEXT_MAX} letters"
    if any(ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F for one in text):  # noqa: PLR2004  controls
        return "holds a control character or line break: write one plain line"
    return None
