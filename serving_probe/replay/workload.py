"""Synthetic load from published statistics: `data/workloads/*.toml` to an endless row of shapes.

Arrivals are a renewal process (Poisson, or gamma with a given coefficient of variation); lengths
are drawn by inverse CDF from published quantiles, input and output independently. Sessions are
fitted *into* the length distribution: a request that continues a conversation has the drawn length
as its whole prompt, history included, so the distribution stays the published one.
"""

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving_probe.errors import WorkloadError
from serving_probe.replay.core import Lengths, Shape

FOLDER: Final = Path(__file__).parents[2] / "data" / "workloads"
MESSAGE_TOKENS: Final = 5
"""What a chat template adds to a message (ChatML: two marks, the role, two line ends)."""

MAX_OPEN: Final = 256
"""Conversations that may still go on; the oldest end first, so an endless run needs no more."""

MIN_USER_TOKENS: Final = 8
"""A turn says at least this much."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Frozen):
    """Where the numbers come from."""

    dataset: str
    paper: str
    licence: str
    url: str
    note: str = ""


class Arrivals(_Frozen):
    """The renewal process of arrivals."""

    process: Literal["poisson", "gamma"]
    rate_per_s: Annotated[float, Field(gt=0, le=10_000)]
    cv: Annotated[float, Field(gt=0, le=100, description="std / mean of the intervals")] = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.process == "poisson" and self.cv != 1.0:
            raise ValueError("a Poisson process has cv 1; say process = 'gamma'")
        return self

    def intervals_s(self, rng: random.Random) -> Iterator[float]:
        """Endless intervals."""
        shape = 1 / self.cv**2
        scale = self.cv**2 / self.rate_per_s
        while True:
            yield rng.gammavariate(shape, scale)


class Quantiles(_Frozen):
    """A distribution of token counts by its quantiles; between two of them it is linear."""

    mean: Annotated[float, Field(gt=0, description="of the data, to compare with")]
    quantiles: Annotated[tuple[tuple[float, float], ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        levels = [level for level, _ in self.quantiles]
        if levels[0] != 0 or levels[-1] != 1 or any(b <= a for a, b in pairwise(levels)):
            raise ValueError("levels must rise from 0 to 1")
        values = [value for _, value in self.quantiles]
        if values[0] < 0 or any(b < a for a, b in pairwise(values)):
            raise ValueError("values must not fall")
        return self

    def at(self, level: float) -> float:
        """The value at a level in [0, 1]."""
        for (p0, v0), (p1, v1) in pairwise(self.quantiles):
            if level <= p1:
                return v0 + (v1 - v0) * (level - p0) / (p1 - p0)
        return self.quantiles[-1][1]


class Sessions(_Frozen):
    """Conversations, so that a prefix cache has work."""

    continue_ratio: Annotated[float, Field(ge=0, le=1, description="arrivals that try to go on")]
    system_prompts: Annotated[int, Field(ge=0, le=1000)]
    system_tokens: Annotated[int, Field(ge=0, le=100_000)]
    think_s: Annotated[float, Field(ge=0, description="pause before a user's next turn")] = 5.0
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 8


class Caller(_Frozen):
    """Who sends, and how often."""

    tenant: Annotated[str, Field(min_length=1)]
    slo_class: str | None = None
    weight: Annotated[float, Field(gt=0)] = 1.0


class Workload(_Frozen):
    """A workload file."""

    name: Annotated[str, Field(min_length=1)]
    title: str
    source: Source
    arrivals: Arrivals
    input_tokens: Quantiles
    output_tokens: Quantiles
    length_scale: Annotated[float, Field(gt=0, le=100)] = 1.0
    max_output_tokens: Annotated[int | None, Field(ge=1)] = None
    sessions: Sessions | None = None
    callers: tuple[Caller, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a workload file; raises `WorkloadError` with one sentence on any fault."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise WorkloadError(f"cannot read workload {path}: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise WorkloadError(f"workload {path} is not valid TOML: {error}.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "file"
            raise WorkloadError(f"workload {path}: {where}: {first['msg']}.") from error

    def notes(self) -> tuple[str, ...]:
        """What a report on this load should say."""
        source = f"lengths after {self.source.dataset} ({self.source.licence}), {self.source.paper}"
        if self.length_scale == 1:
            return (source,)
        return source, f"workload {self.name} scales lengths by {self.length_scale:g}"

    def shapes(self, seed: int, lengths: Lengths) -> Iterator[Shape]:
        """An endless row of requests by arrival; the same seed gives the same row."""
        at_s = 0.0
        fit = Lengths(
            lengths.scale * self.length_scale,
            lengths.max_input,
            _least(lengths.max_output, self.max_output_tokens),
        )
        draw = random.Random(f"{seed}/lengths")
        who = random.Random(f"{seed}/callers")
        book = _Book(self.sessions, random.Random(f"{seed}/sessions")) if self.sessions else None
        for interval_s in self.arrivals.intervals_s(random.Random(f"{seed}/arrivals")):
            at_s += interval_s
            caller = _pick(self.callers, who)
            shape = Shape(
                offset_s=at_s,
                input_tokens=fit.input(self.input_tokens.at(draw.random())),
                output_tokens=fit.output(self.output_tokens.at(draw.random())),
                tenant=caller.tenant if caller else None,
                slo_class=caller.slo_class if caller else None,
            )
            yield book.placed(shape) if book else shape


@dataclass(slots=True)
class _Session:
    number: int
    first: Shape
    ended_s: float
    history_tokens: int = 0
    n_turns: int = 0


class _Book:
    """Open conversations, and which of them a request goes on with."""

    def __init__(self, config: Sessions, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._open: list[_Session] = []
        self._numbers = count()

    def placed(self, shape: Shape) -> Shape:
        """The request as a turn: of the longest conversation it has room for, else of a new one."""
        goes_on = self._rng.random() < self._config.continue_ratio
        system = self._rng.randrange(self._config.system_prompts or 1)
        fitting = [s for s in self._open if self._can_take(s, shape)] if goes_on else []
        if fitting:
            session = max(fitting, key=lambda s: (s.history_tokens, -s.number))
        else:
            session = self._started(shape, system)
        session.history_tokens = shape.input_tokens + shape.output_tokens + MESSAGE_TOKENS
        session.ended_s = shape.offset_s
        session.n_turns += 1
        if session.n_turns >= self._config.max_turns:
            self._open = [other for other in self._open if other is not session]
        return replace(
            shape,
            conversation=session.number,
            system_prompt=session.first.system_prompt,
            system_tokens=session.first.system_tokens,
            slo_class=session.first.slo_class,
        )

    def _can_take(self, session: _Session, shape: Shape) -> bool:
        return (
            session.first.tenant == shape.tenant
            and session.ended_s + self._config.think_s <= shape.offset_s
            and session.history_tokens + MIN_USER_TOKENS + MESSAGE_TOKENS <= shape.input_tokens
        )

    def _started(self, shape: Shape, system: int) -> _Session:
        config = self._config
        needed = config.system_tokens + MIN_USER_TOKENS + 2 * MESSAGE_TOKENS
        has_system = config.system_prompts > 0 and needed <= shape.input_tokens
        first = replace(
            shape,
            system_prompt=system if has_system else None,
            system_tokens=config.system_tokens if has_system else 0,
        )
        session = _Session(next(self._numbers), first, shape.offset_s)
        self._open.append(session)
        del self._open[:-MAX_OPEN]
        return session


def find_workload(source: str) -> Path | None:
    """The file of a shipped workload's name, or of a path that ends in .toml; None: not one."""
    if source.endswith(".toml"):
        return Path(source)
    shipped = FOLDER / f"{source}.toml"
    return shipped if "/" not in source and shipped.is_file() else None


def shipped_workloads() -> list[str]:
    """Names that `find_workload` knows."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def _pick(callers: Sequence[Caller], rng: random.Random) -> Caller | None:
    if not callers:
        return None
    return rng.choices(callers, weights=[caller.weight for caller in callers])[0]


def _least(a: int | None, b: int | None) -> int | None:
    return min(n for n in (a, b) if n is not None) if (a, b) != (None, None) else None
