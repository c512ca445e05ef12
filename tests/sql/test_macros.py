"""The shared formulas against their definitions, spelled out in Python or by hand."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.build.models import load_macros

shared_connection = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for macro in load_macros():
            connection.execute(macro)
        yield connection


def _value(con: duckdb.DuckDBPyConnection, expression: str, *values: object) -> object:
    row = con.execute(f"select {expression}", list(values)).fetchone()
    assert row is not None
    return row[0]


def test_every_gap_reads_back_within_one_percent(con: duckdb.DuckDBPyConnection) -> None:
    worst = con.execute(
        "select max(abs(gap_bin_us(gap_bin(us)) / us - 1))"
        " from (select unnest(range(1, 200000)) as us"
        " union all select unnest(range(200000, 2147483647, 1000003)))"
    ).fetchone()
    assert worst is not None
    assert worst[0] <= 0.01


@pytest.mark.parametrize("gap_us", [0, -5])
def test_no_gap_at_all_has_its_own_bin(con: duckdb.DuckDBPyConnection, gap_us: int) -> None:
    assert _value(con, "gap_bin(?)", gap_us) == -1
    assert _value(con, "gap_bin_us(gap_bin(?))", gap_us) == 0


@shared_connection
@given(
    since=st.integers(0, 500),
    first=st.integers(0, 20),
    n=st.integers(0, 20),
    due=st.integers(0, 300),
    pace=st.integers(1, 40),
)
def test_tokens_on_time_counts_them_one_by_one(
    con: duckdb.DuckDBPyConnection, since: int, first: int, n: int, due: int, pace: int
) -> None:
    one_by_one = sum(since <= due + i * pace for i in range(first, first + n))
    assert _value(con, "tokens_on_time(?, ?, ?, ?, ?)", since, first, n, due, pace) == one_by_one


@shared_connection
@given(st.tuples(st.text(), st.text(), st.text(), st.text()))
def test_two_callers_never_share_a_key(
    con: duckdb.DuckDBPyConnection, words: tuple[str, str, str, str]
) -> None:
    tenant, request, other_tenant, other_request = (word.replace("\0", "") for word in words)
    is_same = _value(
        con,
        "request_key_of(?, ?) = request_key_of(?, ?)",
        tenant,
        request,
        other_tenant,
        other_request,
    )
    assert is_same == ((tenant, request) == (other_tenant, other_request))
    assert _value(con, "request_key_of(?, ?) like 'trace/%'", tenant, request) is False


@pytest.mark.parametrize(
    ("tenant", "request_id", "key"),
    [
        ("a/b", "c", "a%2Fb/c"),
        ("a", "b/c", "a/b/c"),
        ("a%2Fb", "c", "a%252Fb/c"),
        ("trace", "abc", "%74race/abc"),
        (None, "abc", "/abc"),
    ],
)
def test_keys_that_could_meet(
    con: duckdb.DuckDBPyConnection, tenant: str | None, request_id: str, key: str
) -> None:
    assert _value(con, "request_key_of(?::varchar, ?)", tenant, request_id) == key


@pytest.mark.parametrize(
    ("n_gaps", "median_us", "threshold_us"),
    [(7, 100_000, 200_000), (8, 100_000, 500_000), (8, 10_000, 200_000), (0, None, 200_000)],
)
def test_stall_threshold(
    con: duckdb.DuckDBPyConnection, n_gaps: int, median_us: int | None, threshold_us: int
) -> None:
    assert _value(con, "stall_threshold_us(?, ?::double)", n_gaps, median_us) == threshold_us
