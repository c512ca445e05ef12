"""Gaps shared out over tokens: the histogram against the definition, told one token at a time."""

from collections import Counter
from collections.abc import Iterator
from math import ceil, log

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.build.build import DATA
from metrics.build.workspace import Workspace
from metrics.ledger.prices import load_price_cards
from metrics.ledger.slo import load_slo_classes

Chunk = tuple[int, int]  # gap in microseconds, tokens


@pytest.fixture(scope="module")
def work() -> Iterator[Workspace]:
    ledger: dict[str, pl.DataFrame] = {
        "price_cards": load_price_cards(DATA / "prices"),
        "slo_classes": load_slo_classes(DATA / "slo" / "default.toml"),
    }
    workspace = Workspace(None, ledger)
    yield workspace
    workspace.close()


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), min_size=1, max_size=12))
def test_histogram_counts_every_token_gap(work: Workspace, chunks: list[Chunk]) -> None:
    gaps = _token_gaps(chunks)
    if gaps:
        assert sum(gaps) == sum(gap for gap, _ in chunks[1:])

    work.con.execute("delete from store.int_streams")
    work.con.execute(
        "insert into store.int_streams by name select 'k' as request_key, 1 as attempt,"
        " 'gateway' as viewpoint, 0 as started_unix_ns, len($gaps) as n_chunks,"
        " $gaps as chunk_gaps_us, $tokens as chunk_tokens,"
        " list_transform($gaps, lambda gap: 0) as chunk_choices",
        {"gaps": [gap for gap, _ in chunks], "tokens": [tokens for _, tokens in chunks]},
    )
    for model in work.models:
        if model.name in ("int_chunks", "int_token_gaps"):
            work.run(model)
    counted = work.con.sql("select kind, bin, n from memory.unit.int_token_gaps").fetchall()
    work.clear_scratch()

    assert {b: n for kind, b, n in counted if kind == "token"} == Counter(map(_bin, gaps))
    assert {b: n for kind, b, n in counted if kind == "chunk"} == Counter(
        _bin(gap) for gap, _ in chunks[1:]
    )


def _token_gaps(chunks: list[Chunk]) -> list[int]:
    gaps: list[int] = []
    carried = 0
    for gap, tokens in chunks[1:]:
        carried += gap
        if tokens:
            share, longer = divmod(carried, tokens)
            gaps += [share + 1] * longer + [share] * (tokens - longer)
            carried = 0
    if gaps:
        gaps[-1] += carried
    return gaps


def _bin(gap_us: int) -> int:
    return ceil(log(gap_us) / log(1.02)) if gap_us > 0 else -1
