"""Rules are data: an operator's file works as the shipped ones do, and a wrong one says why."""

from pathlib import Path

import pytest
from otlp_bodies import spans

from ingest import wire
from ingest.dialects import SHIPPED, Dialects
from ingest.errors import DialectError
from ingest.frames import Signal
from ingest.rows import segment_rows

GATEWAY = """
name = "our_gateway"
order = 5

[[match]]
scope_prefix = "gw/"
attribute = "gw.id"

[[match]]
resource_attribute_prefix = "gw.deployment."

[span]
request_id = ["gw.id"]
input_tokens = ["gw.prompt", "gen_ai.usage.input_tokens"]

[resource]
worker_pool = ["gw.deployment.pool"]
"""


def test_an_operators_file_adds_an_emitter(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(GATEWAY)
    dialects = Dialects.load(path)
    requests = [
        spans({"gw.id": "a", "gw.prompt": 3, "gen_ai.request.model": "m"}, scope="gw/1"),
        spans({"gw.id": "b"}, scope="not a gateway"),
        spans({}, scope="gw/1"),
        spans({"gw.id": "d"}, scope="", resource={"gw.deployment.pool": "blue"}),
        spans({"tokenmill.attempt": 1, "gw.id": "e"}, scope="gw/2"),
    ]
    frame = wire.decode(Signal.SPAN, [request.SerializeToString() for request in requests])
    table = segment_rows(frame, dialects, [0] * 5, "r").table
    assert table["dialect"].to_pylist() == [
        "our_gateway",
        "other",
        "other",
        "our_gateway",
        "our_gateway",
    ]
    assert table["request_id"].to_pylist() == ["a", None, None, "d", "e"]
    assert table["input_tokens"].to_pylist() == [3, None, None, None, None]
    assert table["request_model"].to_pylist()[0] == "m"
    assert table["worker_pool"].to_pylist() == [None, None, None, "blue", None]
    assert table["attempt"].to_pylist()[4] is None  # the first dialect that matches has the row


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "can't read the dialect file"),
        ("order = 1", "name: Field required"),
        ('name = "x"\n[span]\nwho_knows = ["a"]', r"\[span\] names no column .* who_knows"),
        ('name = "x"\n[span]\ntrace_id = ["a"]', "names no column .* trace_id"),
        ('name = "x"\n[[match]]\n', "needs at least one condition"),
        ('name = "x"\n[[match]]\nscoop = "a"', "Extra inputs are not permitted"),
        ('name = "tokenmill"', "two dialect files are named tokenmill"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(DialectError, match=why) as raised:
        Dialects.load(path)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DialectError, match="No such file"):
        Dialects.load(tmp_path / "missing.toml")


def test_shipped_files_load_and_are_named_after_themselves() -> None:
    assert sorted(path.stem for path in SHIPPED.glob("*.toml")) == ["genai", "tokenmill", "worker"]
    assert Dialects.load().names == ["tokenmill", "other"]
