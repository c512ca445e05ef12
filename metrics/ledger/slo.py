"""Service levels: which promise holds for which requests, and what is asked of an answer.

Reads TOML and lays it out as rows in file order; whether a request kept its promise is `sql/`'s.
"""

import tomllib
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from metrics.errors import SloFileError

SCHEMA: Final = pl.Schema(
    {
        "slo_version": pl.String(),
        "slo_class": pl.String(),
        "class_index": pl.Int64(),  # place in the file
        "valid_from_unix_ns": pl.Int64(),  # NULL: since ever
        "valid_to_unix_ns": pl.Int64(),  # NULL: until further notice
        "is_on_request": pl.Boolean(),  # holds only for requests that name it
        "models": pl.List(pl.String()),  # globs; NULL: any
        "tenants": pl.List(pl.String()),
        "routes": pl.List(pl.String()),
        "ttft_ns": pl.Int64(),  # a criterion that is NULL is not asked
        "tpot_s": pl.Float64(),
        "worst_gap_s": pl.Float64(),
        "p99_gap_s": pl.Float64(),
        "e2e_s": pl.Float64(),
        "pace_ns": pl.Int64(),  # token deadlines: ttft_ns + i * pace_ns
        "min_on_time_ratio": pl.Float64(),
        "deadline_fallback": pl.String(),  # tpot | none
        "score_name": pl.String(),
        "score_threshold": pl.Float64(),
        "unscored": pl.String(),  # accept | reject | exclude
    }
)
"""Table `slo_classes`: one row per class of a version, in file order."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Globs = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Match(_Part):
    """Which requests a class admits: every list that is given must match, as globs."""

    models: Globs | None = None
    tenants: Globs | None = None
    routes: Globs | None = None


class Deadlines(_Part):
    """Token i is due at the class's `ttft_s` + i * `pace_s`; a share of them must be on time."""

    pace_s: Seconds = Field(description="Seconds from one token's deadline to the next's.")
    min_on_time_ratio: float = Field(gt=0, le=1, description="Share that must be on time.")
    fallback: Literal["tpot", "none"] = Field(
        "tpot", description="Where tokens have no times: mean pace instead, or no verdict."
    )


class Quality(_Part):
    """The score an answer must reach, and what an answer without one counts as."""

    score: str = Field(min_length=1, description="Name of the evaluation.")
    threshold: float = Field(description="Least score that passes.")
    unscored: Literal["accept", "reject", "exclude"] = "accept"


class SloClass(_Part):
    """One promise. `tpot_s` and the gap limits can be gamed by holding tokens back."""

    name: str = Field(min_length=1)
    is_on_request: bool = Field(False, description="Only for requests that name the class.")
    match: Match = Match()
    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    worst_gap_s: Seconds | None = None
    p99_gap_s: Seconds | None = None
    e2e_s: Seconds | None = None
    deadlines: Deadlines | None = None
    quality: Quality | None = None

    @model_validator(mode="after")
    def _deadlines_have_a_start(self) -> Self:
        if self.deadlines is not None and self.ttft_s is None:
            raise ValueError("deadlines count from the TTFT limit, so ttft_s must be given too")
        return self


class SloFile(_Part):
    """A version of the promises, valid as of a request's arrival."""

    version: str = Field(min_length=1)
    source: str = Field(min_length=1, description="Where the thresholds are from.")
    valid_from: date | datetime | None = Field(None, description="First instant, UTC.")
    valid_to: date | datetime | None = Field(None, description="First instant after, UTC.")
    classes: tuple[SloClass, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [slo.name for slo in self.classes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"class {twice[0]!r} is defined more than once")
        return self

    @model_validator(mode="after")
    def _has_a_period(self) -> Self:
        start, end = _unix_ns(self.valid_from), _unix_ns(self.valid_to)
        if start is not None and end is not None and start >= end:
            raise ValueError("valid_to must be later than valid_from")
        return self


def load_slo_classes(path: Path) -> pl.DataFrame:
    """Table `slo_classes` from a file, or from every `*.toml` of a folder, in name order.

    Raises `SloFileError` with one sentence: file, field, what was expected.
    """
    paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not paths:
        raise SloFileError(f"{path} holds no service-level file; put a *.toml there.")
    rows = [row for part in paths for row in _rows(read_slo_file(part))]
    return pl.DataFrame(rows, schema=SCHEMA)


def read_slo_file(path: Path) -> SloFile:
    """One file, checked."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SloFileError(f"cannot read the service-level file {path}: {reason}.") from error
    try:
        return SloFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SloFileError(f"{path} is not valid TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the file"
        raise SloFileError(f"{path}: {where}: {first['msg']}.") from error


def _rows(file: SloFile) -> list[dict[str, object]]:
    return [
        {
            "slo_version": file.version,
            "slo_class": slo.name,
            "class_index": index,
            "valid_from_unix_ns": _unix_ns(file.valid_from),
            "valid_to_unix_ns": _unix_ns(file.valid_to),
            "is_on_request": slo.is_on_request,
            "models": slo.match.models,
            "tenants": slo.match.tenants,
            "routes": slo.match.routes,
            "ttft_ns": _nanoseconds(slo.ttft_s),
            "tpot_s": slo.tpot_s,
            "worst_gap_s": slo.worst_gap_s,
            "p99_gap_s": slo.p99_gap_s,
            "e2e_s": slo.e2e_s,
            "pace_ns": _nanoseconds(slo.deadlines.pace_s) if slo.deadlines else None,
            "min_on_time_ratio": slo.deadlines.min_on_time_ratio if slo.deadlines else None,
            "deadline_fallback": slo.deadlines.fallback if slo.deadlines else None,
            "score_name": slo.quality.score if slo.quality else None,
            "score_threshold": slo.quality.threshold if slo.quality else None,
            "unscored": slo.quality.unscored if slo.quality else None,
        }
        for index, slo in enumerate(file.classes)
    ]


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _unix_ns(moment: date | datetime | None) -> int | None:
    """Unix nanoseconds of a TOML date or time; one without an offset is UTC."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (seconds.days * 86_400 + seconds.seconds) * 1_000_000_000 + seconds.microseconds * 1000
