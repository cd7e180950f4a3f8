"""What the installed genai-prices knows, as rows of ours.

Nothing is fetched: the data is a module of the package, and no thread is started. The
package is asked at every moment where its answer may change, so that its own rules decide.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from worker import __version__
from worker.errors import UsageError
from worker.prices.shape import ALL_DAY, ALWAYS, BATCH, STANDARD, Name, PackagePrices, Price, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CURRENCY: Final = "USD"
PACKAGE_CURE: Final = (
    f"install the wheel with its extra, 'quota_worker-{__version__}-py3-none-any.whl[prices]'; "
    "in a clone: .venv/bin/pip install -e '.[prices]'"
)
PROVIDER_BY_NAME: Final = ""
PROVIDER_BY_PREFIX: Final = "/"
_BATCH_CONTEXT: Final = {"processing": "batch"}
_MIDNIGHT: Final = time(0, 0)
# What a ledger of tokens can't tell from other output, and costs otherwise.
_OWN_OUTPUT: Final = (
    "output_audio_mtok",
    "output_image_mtok",
    "output_video_mtok",
    "output_reasoning_mtok",
    "output_citation_mtok",
)
_Amounts = tuple[tuple[int, Decimal, Decimal | None, Decimal], ...]


def installed_prices() -> PackagePrices:
    """The data of the installed package. Raises UsageError where it isn't installed."""
    try:
        from genai_prices import __version__ as version
        from genai_prices import data_snapshot
    except ImportError:
        raise UsageError(
            f"genai-prices is not installed: {PACKAGE_CURE}; "
            "or load prices of your own with quota-worker price load FILE"
        ) from None
    return converted(data_snapshot.get_snapshot().providers, f"genai-prices {version}")


def converted(providers: Sequence[Any], source: str) -> PackagePrices:
    """The package's providers as rows; what can't be carried is left out, and named."""
    prices: list[Price] = []
    left_out: list[tuple[str, str]] = []
    for provider in providers:
        for model in provider.models:
            for processing in (STANDARD, BATCH):
                rows, faults = _prices(provider.id, model, processing)
                prices += rows
                suffix = ":batch" if processing == BATCH else ""
                left_out += [(f"{provider.id}/{model.id}{suffix}", fault) for fault in faults]
    return PackagePrices(
        source, tuple(prices), tuple(_rules(providers)), tuple(_names(providers)), tuple(left_out)
    )


def _prices(provider: str, model: Any, processing: str) -> tuple[list[Price], list[str]]:  # noqa: ANN401
    """One model's rows, and why what is missing of them is."""
    variants = [v for v in model.price_variants or () if v.when == _BATCH_CONTEXT]
    if processing == BATCH and not variants:
        return [], []
    rows: list[Price] = []
    faults: list[str] = []
    before: list[tuple[time, _Amounts | None]] = []
    for start, day in _starts(model):
        parts: list[tuple[time, _Amounts | None]] = []
        for at in _times(model):
            now = datetime.combine(day, at, UTC)
            if processing == STANDARD:
                amounts, fault = _amounts(model.get_prices(now))
            elif any(v.constraint is None or v.constraint.active(now) for v in variants):
                amounts, fault = _amounts(model.get_prices(now, _BATCH_CONTEXT))
            else:
                amounts, fault = None, None  # not offered yet
            if fault is not None and fault not in faults:
                faults.append(fault)
            if not parts or parts[-1][1] != amounts:
                parts.append((at, amounts))
        if parts == before or (not rows and all(amounts is None for _, amounts in parts)):
            continue
        before = parts
        for at, amounts in parts:
            rows += _rows(provider, model.id, processing, (start, at), amounts)
    return rows, faults


def _rows(
    provider: str, model: str, processing: str, since: tuple[str, time], amounts: _Amounts | None
) -> Iterator[Price]:
    start, at = since
    for above, per_input, per_cached, per_output in amounts or ((0, None, None, None),):
        yield Price(
            model=model,
            currency=CURRENCY,
            input=per_input,
            cached_input=per_cached,
            output=per_output,
            provider=provider,
            processing=processing,
            valid_from=start,
            from_time=at.isoformat() if at != _MIDNIGHT else ALL_DAY,
            input_above=above,
        )


def _constraints(model: Any) -> Iterator[Any]:  # noqa: ANN401  the package's own class
    if isinstance(model.prices, list):
        yield from (p.constraint for p in model.prices if p.constraint is not None)
    yield from (v.constraint for v in model.price_variants or () if v.constraint is not None)


def _starts(model: Any) -> list[tuple[str, date]]:  # noqa: ANN401  the package's own class
    """From when a price may be another, and a day of that time; UTC, the first is always."""
    days = sorted({c.start_date for c in _constraints(model) if hasattr(c, "start_date")})
    early = (days[0] if days else date(2000, 1, 2)) - timedelta(days=1)
    return [(ALWAYS, early), *((f"{day.isoformat()}T00:00:00+00:00", day) for day in days)]


def _times(model: Any) -> list[time]:  # noqa: ANN401  the package's own class
    """Times of day (UTC) at which a price may change."""
    bounds = {_MIDNIGHT}
    for constraint in _constraints(model):
        if hasattr(constraint, "start_time"):
            bounds |= {_utc(constraint.start_time), _utc(constraint.end_time)}
    return sorted(bounds)


def _utc(at: time) -> time:
    if at.tzinfo is None:
        return at
    return datetime.combine(date(2000, 1, 2), at).astimezone(UTC).time()


def _amounts(price: Any) -> tuple[_Amounts | None, str | None]:  # noqa: ANN401
    """(tier's lower end, input, cached input, output) by tier; or None, and why."""
    fault = _fault(price)
    if fault is not None:
        return None, fault
    per_input, per_cached, per_output = price.input_mtok, price.cache_read_mtok, price.output_mtok
    bounds = {
        tier.start
        for value in (per_input, per_cached, per_output)
        for tier in getattr(value, "tiers", ())
    }
    if 0 in bounds:
        return None, "has a tier that begins at no tokens"
    return tuple(
        (
            above,
            _at(per_input, above),
            None if per_cached is None else _at(per_cached, above),
            Decimal(0) if per_output is None else _at(per_output, above),
        )
        for above in sorted({0, *bounds})
    ), None


def _fault(price: Any) -> str | None:  # noqa: ANN401  the package's own class
    if price.input_mtok is None:
        return "has no price by input tokens"
    if price.requests_kcount is not None:
        return "has a price by request, too"
    output = getattr(price.output_mtok, "base", price.output_mtok)
    for key in _OWN_OUTPUT:
        own = getattr(price, key)
        if own is not None and getattr(own, "base", own) != output:
            return f"has a price of its own for {key.removesuffix('_mtok').replace('_', ' ')}"
    return None


def _at(value: Any, above: int) -> Decimal:  # noqa: ANN401  a Decimal or the package's tiers
    """The price for more than `above` input tokens."""
    if isinstance(value, Decimal):
        return value
    price: Decimal = value.base
    for tier in value.tiers:
        if tier.start <= above:
            price = tier.price
    return price


def _rules(providers: Sequence[Any]) -> Iterator[Rule]:
    """Who is meant by a name: by the name itself, by its prefix, and within each provider."""
    by_id = {provider.id: provider for provider in providers}
    for place, provider in enumerate(providers):
        if provider.model_match is not None:
            yield from _clauses(PROVIDER_BY_NAME, place, provider.model_match, (provider.id, ""))
        yield Rule(PROVIDER_BY_PREFIX, place, 0, 0, "is", provider.id, provider.id)
        if provider.provider_match is not None:
            later = len(providers) + place  # an id comes before what is like one
            yield from _clauses(
                PROVIDER_BY_PREFIX, later, provider.provider_match, (provider.id, "")
            )
        searched = [provider, *(by_id[other] for other in provider.fallback_model_providers or ())]
        models = [(owner, model) for owner in searched for model in owner.models]
        for number, (owner, model) in enumerate(models):
            yield from _clauses(provider.id, number, model.match, (owner.id, model.id))


def _clauses(scope: str, place: int, match: Any, answer: tuple[str, str]) -> Iterator[Rule]:  # noqa: ANN401
    for part, clauses in enumerate(_parts(match)):
        for number, (kind, literal) in enumerate(clauses):
            yield Rule(scope, place, part, number, kind, literal, *answer)


def _parts(match: Any) -> list[list[tuple[str, str]]]:  # noqa: ANN401  the package's own classes
    """The match as alternatives, each of clauses that all must hold."""
    if hasattr(match, "or_"):
        return [part for inner in match.or_ for part in _parts(inner)]
    if hasattr(match, "and_"):
        parts: list[list[tuple[str, str]]] = [[]]
        for inner in match.and_:
            parts = [[*left, *right] for left in parts for right in _parts(inner)]
        return parts
    for key, kind in (
        ("equals", "is"),
        ("starts_with", "starts"),
        ("ends_with", "ends"),
        ("contains", "holds"),
    ):
        if hasattr(match, key):
            return [[(kind, getattr(match, key).lower())]]
    return [[("regex", match.regex)]]


def _names(providers: Sequence[Any]) -> Iterator[Name]:
    """Each name that a rule spells out, and the model that it means by all of them."""
    spelt = {
        literal
        for provider in providers
        for model in provider.models
        for part in _parts(model.match)
        for kind, literal in part
        if kind == "is" and len(part) == 1
    }
    owners = {id(model): provider.id for provider in providers for model in provider.models}
    for name in sorted(spelt):
        model = meant(name, providers)
        if model is not None:
            yield Name(name, owners[id(model)], model.id)


def meant(name: str, providers: Sequence[Any]) -> Any | None:  # noqa: ANN401  the package's own class
    """The model that a name means, None for none; as `quota_price_match` finds it."""
    from genai_prices.data_snapshot import find_provider_by_id

    name = name.lower()
    prefix, slash, rest = name.partition("/")
    if slash and prefix:
        provider = find_provider_by_id(list(providers), prefix)
        found = provider and provider.find_model(rest, all_providers=list(providers))
        if found:
            return found
    for provider in _matching(providers, name):
        return provider.find_model(name, all_providers=list(providers))
    return None


def _matching(providers: Iterable[Any], name: str) -> Iterator[Any]:
    return (p for p in providers if p.model_match is not None and p.model_match.is_match(name))
