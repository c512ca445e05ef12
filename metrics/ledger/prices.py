"""Price cards: what a worker type, a pool, the fleet or a hosted model costs, and since when.

Reads TOML and lays it out as exact integer rates; knows nothing of time spent or money owed.
"""

import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Self

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from metrics.errors import PriceCardError

HOUR_NS: Final = 3_600_000_000_000
MONTH_NS: Final = 730 * HOUR_NS
"""A month of a monthly price: a twelfth of 8760 hours."""
YEAR_HOURS: Final = 8760

SCHEMA: Final = pl.Schema(
    {
        "card_id": pl.String,
        "kind": pl.String,
        "worker_type": pl.String,  # NULL: the card is not about a worker type
        "pool": pl.String,  # NULL on a fleet card: the whole fleet
        "model": pl.String,  # of a hosted model's card
        "line": pl.String,  # capacity | host | network | cache_storage | operations | api
        "component": pl.String,  # what the line is made of
        "basis": pl.String,  # accelerator | worker | gigabyte | fleet | mtok
        "nano_usd": pl.Int64,  # per basis unit and period
        "period_ns": pl.Int64,  # NULL: not a price of time
        "valid_from_unix_ns": pl.Int64,  # NULL: since ever
        "valid_to_unix_ns": pl.Int64,  # NULL: until further notice
        "source": pl.String,
        "source_date": pl.Date,
    }
)
"""Table `price_cards`: one row per card and component."""

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000_000, decimal_places=9)]


class Rate(NamedTuple):
    """One component of a card: `nano_usd` per unit of `basis` and per `period_ns`."""

    line: str
    component: str
    basis: str
    nano_usd: int
    period_ns: int | None


class Card(BaseModel):
    """What every card says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, description="Unique name of the card.")
    currency: Literal["USD"] = "USD"
    valid_from: date | datetime | None = Field(
        None, description="First instant, UTC; absent: ever."
    )
    valid_to: date | datetime | None = Field(None, description="First instant after, UTC.")
    source: str = Field(min_length=1, description="Where the figures are from.")
    source_date: date = Field(description="The day the source was read.")

    @model_validator(mode="after")
    def _has_a_period(self) -> Self:
        start, end = self.valid_ns
        if start is not None and end is not None and start >= end:
            raise ValueError("valid_to must be later than valid_from")
        return self

    @property
    def valid_ns(self) -> tuple[int | None, int | None]:
        """Validity [from, to) in unix nanoseconds; None is open."""
        return _unix_ns(self.valid_from), _unix_ns(self.valid_to)

    @property
    def subject(self) -> tuple[str, str | None]:
        """What the card prices: two cards of one subject must not be valid at once."""
        raise NotImplementedError

    def rates(self) -> Iterator[Rate]:
        """The card's components."""
        raise NotImplementedError


class WorkerCard(Card):
    """What comes with a worker, however its accelerators are paid."""

    worker_type: str = Field(min_length=1, description="The accelerator class, as workers name it.")
    host_usd_per_hour: Usd | None = Field(None, description="Attached host, per worker.")
    network_usd_per_hour: Usd | None = Field(None, description="Network, per worker.")
    cache_usd_per_gb_hour: Usd | None = Field(
        None, description="Memory that cached KV holds, per resident 10^9 bytes."
    )

    @property
    def subject(self) -> tuple[str, str | None]:
        return "worker_type", self.worker_type

    def rates(self) -> Iterator[Rate]:
        if self.host_usd_per_hour is not None:
            yield Rate("host", "host", "worker", _nano(self.host_usd_per_hour), HOUR_NS)
        if self.network_usd_per_hour is not None:
            yield Rate("network", "network", "worker", _nano(self.network_usd_per_hour), HOUR_NS)
        if self.cache_usd_per_gb_hour is not None:
            nano = _nano(self.cache_usd_per_gb_hour)
            yield Rate("cache_storage", "memory", "gigabyte", nano, HOUR_NS)


class RentedCard(WorkerCard):
    """Accelerators paid by the hour."""

    kind: Literal["rented"]
    usd_per_accelerator_hour: Usd

    def rates(self) -> Iterator[Rate]:
        nano = _nano(self.usd_per_accelerator_hour)
        yield Rate("capacity", "rental", "accelerator", nano, HOUR_NS)
        yield from super().rates()


class OwnedCard(WorkerCard):
    """Accelerators bought: straight-line capital, and energy at rated power."""

    kind: Literal["owned"]
    usd_per_accelerator: Usd = Field(description="Purchase price, its share of the server in it.")
    residual_usd_per_accelerator: Usd = Field(Decimal(0), description="Worth at the end of life.")
    lifetime_years: Decimal = Field(gt=0, le=30, decimal_places=3)
    kw_per_accelerator: Decimal = Field(ge=0, le=100, description="Mean draw, server share in it.")
    pue: Decimal = Field(ge=1, le=5, description="Power usage effectiveness of the site.")
    usd_per_kwh: Usd

    @model_validator(mode="after")
    def _loses_value(self) -> Self:
        if self.residual_usd_per_accelerator > self.usd_per_accelerator:
            raise ValueError("residual_usd_per_accelerator must not exceed usd_per_accelerator")
        return self

    def rates(self) -> Iterator[Rate]:
        capital = _nano(self.usd_per_accelerator - self.residual_usd_per_accelerator)
        life_ns = int(self.lifetime_years * YEAR_HOURS * HOUR_NS)
        yield Rate("capacity", "capital", "accelerator", capital, life_ns)
        energy = _nano(self.kw_per_accelerator * self.pue * self.usd_per_kwh)
        yield Rate("capacity", "energy", "accelerator", energy, HOUR_NS)
        yield from super().rates()


class FleetCard(Card):
    """What is paid for a pool or for the whole fleet, whatever its size."""

    kind: Literal["fleet"]
    pool: str | None = Field(None, description="The pool; absent: the whole fleet.")
    operations_usd_per_month: Usd | None = Field(None, description="People and tools.")
    network_usd_per_month: Usd | None = None

    @property
    def subject(self) -> tuple[str, str | None]:
        return "pool", self.pool

    def rates(self) -> Iterator[Rate]:
        if self.operations_usd_per_month is not None:
            nano = _nano(self.operations_usd_per_month)
            yield Rate("operations", "operations", "fleet", nano, MONTH_NS)
        if self.network_usd_per_month is not None:
            yield Rate("network", "network", "fleet", _nano(self.network_usd_per_month), MONTH_NS)


class ApiCard(Card):
    """A hosted model's prices per million tokens."""

    kind: Literal["api"]
    model: str = Field(min_length=1)
    usd_per_mtok_input: Usd
    usd_per_mtok_output: Usd
    usd_per_mtok_cached_read: Usd | None = None
    usd_per_mtok_cache_write: Usd | None = None

    @property
    def subject(self) -> tuple[str, str | None]:
        return "model", self.model

    def rates(self) -> Iterator[Rate]:
        prices = {
            "input": self.usd_per_mtok_input,
            "cached_read": self.usd_per_mtok_cached_read,
            "cache_write": self.usd_per_mtok_cache_write,
            "output": self.usd_per_mtok_output,
        }
        for component, price in prices.items():
            if price is not None:
                yield Rate("api", component, "mtok", _nano(price), None)


AnyCard = Annotated[RentedCard | OwnedCard | FleetCard | ApiCard, Field(discriminator="kind")]
_CARD: Final[TypeAdapter[AnyCard]] = TypeAdapter(AnyCard)


def load_price_cards(folder: Path) -> pl.DataFrame:
    """The cards of every TOML file in `folder` as table `price_cards`, one row per component.

    Columns are `SCHEMA`. Raises `PriceCardError` for a file or card that can't be read, and for
    two cards that price one thing at one time.
    """
    cards = [(path, card) for path in sorted(_toml_files(folder)) for card in _read_cards(path)]
    _refuse_clashes(cards)
    return pl.DataFrame([row for _, card in cards for row in _rows(card)], schema=SCHEMA)


def _toml_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.suffix == ".toml"]
    except OSError as error:
        raise PriceCardError(
            f"cannot read the price card folder {folder} ({error.strerror}); "
            "give a folder of TOML price cards."
        ) from error


def _read_cards(path: Path) -> list[AnyCard]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PriceCardError(
            f"cannot read price card file {path}: {error}; it must be a TOML text file."
        ) from error
    entries = content.get("cards")
    if not isinstance(entries, list) or not entries or content.keys() != {"cards"}:
        raise PriceCardError(
            f"price card file {path} must hold [[cards]] tables and nothing else, "
            f"but has {', '.join(map(repr, content)) or 'nothing'}; see data/prices for examples."
        )
    return [_read_card(path, index, entry) for index, entry in enumerate(entries, start=1)]


def _read_card(path: Path, index: int, entry: object) -> AnyCard:
    try:
        return _CARD.validate_python(entry)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = entry.get("id", f"number {index}") if isinstance(entry, dict) else f"number {index}"
        kinds = "rented, owned, fleet, api"
        field = ".".join(str(part) for part in first["loc"] if part not in kinds.split(", "))
        came = f", but it is {first['input']!r}" if not isinstance(first["input"], dict) else ""
        raise PriceCardError(
            f"price card {name!r} in {path}: {f'field {field!r}' if field else 'the card'}: "
            f"{first['msg'][:1].lower()}{first['msg'][1:]}{came}; correct it and try again."
        ) from error


def _refuse_clashes(cards: list[tuple[Path, AnyCard]]) -> None:
    seen: dict[str, Path] = {}
    by_subject: dict[tuple[str, str | None], list[tuple[Path, AnyCard]]] = {}
    for path, card in cards:
        if card.id in seen:
            raise PriceCardError(
                f"price card {card.id!r} is in {seen[card.id]} and again in {path}; "
                "each card needs an id of its own."
            )
        seen[card.id] = path
        for other_path, other in by_subject.setdefault(card.subject, []):
            if _overlap(card.valid_ns, other.valid_ns):
                kind, name = card.subject
                raise PriceCardError(
                    f"price cards {other.id!r} ({other_path}) and {card.id!r} ({path}) are both "
                    f"valid for {kind} {name!r} at one time; end one with valid_to where the "
                    "other starts with valid_from."
                )
        by_subject[card.subject].append((path, card))


def _overlap(a: tuple[int | None, int | None], b: tuple[int | None, int | None]) -> bool:
    a_before_b = a[1] is not None and b[0] is not None and a[1] <= b[0]
    b_before_a = b[1] is not None and a[0] is not None and b[1] <= a[0]
    return not (a_before_b or b_before_a)


def _rows(card: AnyCard) -> Iterator[dict[str, object]]:
    valid_from, valid_to = card.valid_ns
    for rate in card.rates():
        yield {
            "card_id": card.id,
            "kind": card.kind,
            "worker_type": card.worker_type if isinstance(card, WorkerCard) else None,
            "pool": card.pool if isinstance(card, FleetCard) else None,
            "model": card.model if isinstance(card, ApiCard) else None,
            **rate._asdict(),
            "valid_from_unix_ns": valid_from,
            "valid_to_unix_ns": valid_to,
            "source": card.source,
            "source_date": card.source_date,
        }


def _nano(usd: Decimal) -> int:
    """USD as whole nano-USD; exact but for products such as an energy price's."""
    return int((usd * 1_000_000_000).to_integral_value(ROUND_HALF_EVEN))


def _unix_ns(at: date | datetime | None) -> int | None:
    if at is None:
        return None
    if not isinstance(at, datetime):
        at = datetime.combine(at, time(), tzinfo=UTC)
    elif at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
