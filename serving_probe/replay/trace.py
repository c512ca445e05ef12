"""Readers of two public trace formats: Azure's CSV and Mooncake's JSONL, told apart by content.

They give shapes; text comes from `prompts`. Azure: Azure/AzurePublicDataset, P. Patel et al.,
"Splitwise", ISCA 2024. Mooncake: kvcache-ai/Mooncake, FAST 2025.
"""

import csv
import json
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from serving_probe.errors import TraceError
from serving_probe.replay.core import Lengths, Shape

AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS: Final = ("timestamp", "input_length", "output_length", "hash_ids")
MOONCAKE_BLOCK_TOKENS: Final = 512
COARSE_S: Final = 1.0
"""Time stamps with steps of a second or more, many rows a step, are a clock's and not arrivals'."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace's requests by arrival, and what was done to them that a report should say."""

    shapes: tuple[Shape, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    at_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def read_trace(path: Path, seed: int = 0, lengths: Lengths | None = None) -> Trace:
    """The requests of a trace file; raises `TraceError` naming file, line and what was expected."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(f"cannot read trace {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"trace {path} is not UTF-8 text (byte {error.start}).") from error
    first = text.lstrip()[:1]
    read: Callable[[Path, str], Iterator[_Row]]
    if not first:
        raise TraceError(f"trace {path} is empty; expected Azure CSV or Mooncake JSONL.")
    read = _mooncake_rows if first == "{" else _azure_rows
    rows = sorted(read(path, text), key=lambda row: row.at_s)
    if not rows:
        raise TraceError(f"trace {path} has a header but no requests.")
    times, notes = _arrivals([row.at_s for row in rows], seed)
    lengths = lengths or Lengths()
    if lengths.scale != 1:
        notes = (*notes, f"lengths scaled by {lengths.scale:g}")
    block_tokens = max(1, round(MOONCAKE_BLOCK_TOKENS * lengths.scale))
    shapes = (
        Shape(
            offset_s=at_s,
            input_tokens=lengths.input(row.input_tokens),
            output_tokens=lengths.output(row.output_tokens),
            block_ids=row.hash_ids,
            block_tokens=block_tokens if row.hash_ids else 0,
        )
        for at_s, row in zip(times, rows, strict=True)
    )
    return Trace(tuple(sorted(shapes, key=lambda shape: shape.offset_s)), notes)


def _azure_rows(path: Path, text: str) -> Iterator[_Row]:
    lines = csv.reader(text.splitlines())
    header = tuple(next(lines, ()))
    if header != AZURE_COLUMNS:
        raise TraceError(
            f"trace {path}, line 1: expected the columns {','.join(AZURE_COLUMNS)} or a JSON object"
            f" with {', '.join(MOONCAKE_FIELDS)}, not {','.join(header)[:80]!r}."
        )
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        try:
            at, n_in, n_out = line
            moment = datetime.fromisoformat(at)
            yield _Row(moment.timestamp(), _tokens(int(n_in)), _tokens(int(n_out)))
        except ValueError:
            raise TraceError(
                f"trace {path}, line {number}: expected a time and two token counts like"
                f" 2023-11-16 18:15:46.6805900,374,44, not {','.join(line)[:80]!r}."
            ) from None


def _mooncake_rows(path: Path, text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            n_in, ids = _tokens(value["input_length"]), tuple(value["hash_ids"])
            if len(ids) != -(-n_in // MOONCAKE_BLOCK_TOKENS) or not all(
                type(i) is int for i in ids
            ):
                raise ValueError
            at_s = value["timestamp"] / 1000
            yield _Row(float(at_s), n_in, _tokens(value["output_length"]), ids)
        except (ValueError, TypeError, KeyError):
            raise TraceError(
                f"trace {path}, line {number}: expected a JSON object with timestamp (ms),"
                " input_length, output_length and hash_ids, one id for every"
                f" {MOONCAKE_BLOCK_TOKENS} input tokens, not {line[:80]!r}."
            ) from None


def _tokens(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError
    return value


def _arrivals(times: list[float], seed: int) -> tuple[list[float], tuple[str, ...]]:
    """Times from zero; coarse ones are spread evenly over the clock's step, and a note says so.

    Mooncake's conversation trace is stamped every 3 s, ten requests at a time: replayed as it is,
    its bursts would be the clock's.
    """
    first = times[0]
    offsets = [at - first for at in times]
    steps = [b - a for a, b in pairwise(sorted(set(offsets)))]
    if len(steps) < 2 or len(steps) > len(times) / 2 or statistics.median(steps) < COARSE_S:
        return offsets, ()
    step = statistics.median(steps)
    rng = random.Random(f"{seed}/jitter")
    note = f"arrivals are stamped every {step:g} s; spread evenly inside that step, seed {seed}"
    return [at + rng.uniform(0, step) for at in offsets], (note,)
