"""The replay against the bundled stack: client and gateway tell the same story."""

from pathlib import Path

import pytest
from scripted import Receiver, attributes_of

from serving_probe.emit import TelemetryConfig
from serving_probe.replay.core import ReplayConfig
from serving_probe.replay.load import run_replay
from serving_probe.replay.record import read_records

pytestmark = [pytest.mark.stack, pytest.mark.slow]
TOPOLOGY = Path(__file__).parents[2] / "data" / "topologies" / "1p1d.toml"


def test_client_and_gateway_agree_request_by_request(receiver: Receiver, tmp_path: Path) -> None:
    fleet = pytest.importorskip("serving_probe.stack.fleet", reason="needs tokenmill[stack]")
    from serving_probe.stack.topology import Topology

    topology = Topology.load(TOPOLOGY).model_copy(update={"model": "tiny", "port": 0})
    out = tmp_path / "client.jsonl"
    with fleet.Fleet(topology, TelemetryConfig(endpoint=receiver.url)) as stack:
        stack.wait_ready(60.0)
        config = ReplayConfig.create(
            url=stack.url,
            source="demo",
            n_requests=24,
            rate_scale=6,
            max_input_tokens=120,
            max_output_tokens=8,
            cancel_ratio=0.2,
            out=out,
        )
        summary = run_replay(config)
    assert summary.n_sent == 24
    assert set(summary.n_by_outcome) == {"cancelled", "completed"}
    assert summary.cached_tokens  # sessions and system prompts give the cache work
    roots = [attrs for span in receiver.spans if (attrs := attributes_of(span)).get(REQUEST_ID)]
    by_id = {attrs[REQUEST_ID]: attrs for attrs in roots}
    records = read_records(out)
    assert len(roots) == len(by_id) == len(records) == 24
    for record in records:
        attrs = by_id[record.request_id]
        assert attrs["tokenmill.tenant.id"] == record.tenant_id
        assert attrs["gen_ai.conversation.id"] == record.conversation_id
        assert attrs["tokenmill.intended_start_unix_nano"] == record.scheduled_unix_ns
        if record.outcome == "completed":
            assert attrs["tokenmill.outcome"] == "completed"
            assert attrs["gen_ai.usage.input_tokens"] == record.input_tokens
            assert attrs["gen_ai.usage.cache_read.input_tokens"] == record.cached_tokens
            assert attrs["gen_ai.usage.output_tokens"] == record.output_tokens
            assert attrs["gen_ai.usage.output_tokens"] == record.planned_output_tokens
            assert len(attrs["tokenmill.chunk.gaps_us"]) == record.n_chunks


REQUEST_ID = "tokenmill.request.id"
