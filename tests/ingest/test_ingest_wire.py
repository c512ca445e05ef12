"""Both decoders give the same frames, and the same rows, for whatever is on the wire."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from otlp_bodies import every_metric, logs, spans

from ingest import wire, wire_upb
from ingest.descriptor import LENIENT
from ingest.dialects import Dialects
from ingest.errors import UnreadableBodyError
from ingest.frames import Frame, Signal
from ingest.rows import segment_rows

SIGNALS = {"traces": Signal.SPAN, "metrics": Signal.METRIC, "logs": Signal.LOG}
DIALECTS = Dialects.load()

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.none() | st.booleans() | INT64 | st.floats() | TEXT | st.binary(max_size=6)
VALUES = st.recursive(
    SCALARS | st.lists(INT64, max_size=4) | st.lists(TEXT, max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = TEXT | st.sampled_from(
    ["tokenmill.chunk.gaps_us", "gen_ai.usage.input_tokens", "gen_ai.request.stream"]
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=5)


def parts(frame: Frame) -> dict[str, pa.Table]:
    """The tables of a frame."""
    return {
        "rows": frame.rows,
        "attributes": frame.attributes,
        "resources": frame.resources,
        "bodies": frame.bodies,
    }


def rows_of(frame: Frame, n_bodies: int) -> pa.Table:
    """The frame's segment rows, structurally checked."""
    table = segment_rows(frame, DIALECTS, [1] * n_bodies, "test").table
    table.validate(full=True)
    return table


def assert_same(signal: Signal, bodies: list[bytes]) -> pa.Table:
    """Both decoders agree on `bodies`, column for column; the segment rows."""
    fast, slow = wire.decode(signal, bodies), wire_upb.decode(signal, bodies)
    for name, table in parts(fast).items():
        table.validate(full=True)
        for column in table.column_names:
            # Compared as text: NaN differs from itself.
            got, want = table[column], parts(slow)[name][column]
            assert got.type == want.type, column
            assert str(got.to_pylist()) == str(want.to_pylist()), f"{name}.{column}"
    np.testing.assert_array_equal(fast.repaired, slow.repaired)
    assert fast.n_resources == slow.n_resources
    rows = rows_of(fast, len(bodies))
    assert str(rows.to_pylist()) == str(rows_of(slow, len(bodies)).to_pylist())
    return rows


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(ATTRIBUTES, max_size=3), min_size=1, max_size=3), ATTRIBUTES)
def test_decoders_agree_on_any_span(batches: list[list[Any]], resource: dict[str, Any]) -> None:
    assert_same(
        Signal.SPAN,
        [spans(*batch, resource=resource).SerializeToString() for batch in batches],
    )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, max_size=3), ATTRIBUTES)
def test_decoders_agree_on_any_log(bodies: list[Any], attributes: dict[str, Any]) -> None:
    assert_same(Signal.LOG, [logs(*bodies, attributes=attributes).SerializeToString()])


def test_decoders_agree_on_every_kind_of_metric() -> None:
    bodies = [every_metric().SerializeToString(), b"", every_metric().SerializeToString()]
    assert assert_same(Signal.METRIC, bodies).num_rows == 16


def test_decoders_agree_on_captures(captures: Path) -> None:
    files = sorted(captures.glob("*/*.pb"))
    assert files
    by_signal: dict[Signal, list[bytes]] = {signal: [] for signal in Signal}
    for path in files:
        by_signal[SIGNALS[path.suffixes[-2].lstrip(".")]].append(path.read_bytes())
    for signal, bodies in by_signal.items():
        for start in range(0, len(bodies), 16):
            assert_same(signal, bodies[start : start + 16])


@pytest.mark.parametrize("decode", [wire.decode, wire_upb.decode])
@pytest.mark.parametrize("body", [b'{"resourceSpans": []}', b"\x0a\xff\x01", b"\xff" * 40])
def test_a_torn_body_is_unreadable(decode: Any, body: bytes) -> None:
    with pytest.raises(UnreadableBodyError, match="not an OTLP protobuf"):
        decode(Signal.SPAN, [spans({}).SerializeToString(), body])


WHOLE = {
    Signal.SPAN: spans({"a": [1, 2], "b": {"c": 1.5}}, {"tokenmill.chunk.gaps_us": [7, 8]}),
    Signal.METRIC: every_metric({"service.name": "s"}),
    Signal.LOG: logs("text", {"k": [True]}, attributes={"x": "y"}),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(list(Signal)))
def test_a_damaged_body_is_read_alike_or_unreadable(data: st.DataObject, signal: Signal) -> None:
    body = bytearray(WHOLE[signal].SerializeToString())
    damage = st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=4)
    for at, byte in data.draw(damage):
        body[at] = byte
    read = {}
    for name, decode in (("ptars", wire.decode), ("upb", wire_upb.decode)):
        try:
            read[name] = str(rows_of(decode(signal, [bytes(body)]), 1).to_pylist())
        except UnreadableBodyError:
            read[name] = "unreadable"
    assert read["ptars"] == read["upb"]


def test_text_that_is_not_utf8_is_repaired_and_counted() -> None:
    good = spans({"gen_ai.request.model": "abcdef"}).SerializeToString()
    bad = good.replace(b"abcdef", b"ab\xffdef")
    rows = assert_same(Signal.SPAN, [good, bad])
    assert rows["request_model"].to_pylist() == ["abcdef", "ab\ufffddef"]
    assert wire.decode(Signal.SPAN, [good, bad]).repaired.tolist() == [0, 1]


def test_endless_nesting_costs_only_its_value() -> None:
    deep = b""
    for _ in range(500):  # OTLP's own classes can't even build this
        deep = _field(1, _field(5, deep))
    body = LENIENT[Signal.SPAN].FromString(spans({"gen_ai.request.model": "m"}).SerializeToString())
    span = body.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key=b"deep").value.array_value.values.add(array_value=deep)
    rows = assert_same(Signal.SPAN, [body.SerializeToString()])
    assert rows["request_model"].to_pylist() == ["m"]
    assert "nested too deep" in rows["attributes"][0].as_py()[0]["value"]


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    out, size = bytes([number << 3 | 2]), len(content)
    while size > 127:
        out += bytes([size & 127 | 128])
        size >>= 7
    return out + bytes([size]) + content


def test_no_body_at_all_is_an_empty_request() -> None:
    for signal in Signal:
        assert assert_same(signal, [b""]).num_rows == 0
