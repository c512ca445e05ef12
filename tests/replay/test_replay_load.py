"""The load generator against a real scripted server."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted import Upstream

from serving_probe.errors import ReplayError
from serving_probe.replay.core import Progress, ReplayConfig
from serving_probe.replay.load import run_replay
from serving_probe.replay.record import read_records
from serving_probe.replay.tally import quantile


def config(upstream: Upstream, tmp_path: Path, **fields: Any) -> ReplayConfig:
    fields = {"n_requests": 8, "rate_scale": 100, "out": tmp_path / "r.jsonl", **fields}
    return ReplayConfig.create(url=upstream.url, **fields)


def test_each_attempt_is_recorded_with_the_servers_usage(
    upstream: Upstream, tmp_path: Path
) -> None:
    progress: list[Progress] = []
    summary = run_replay(config(upstream, tmp_path, n_requests=12), progress.append)
    records = read_records(tmp_path / "r.jsonl")
    assert summary.n_sent == len(records) == 12
    assert summary.n_by_outcome == {"completed": 12}
    assert summary.model == "scripted"
    assert summary.n_without_usage == 0
    assert summary.output_tokens == sum(r.planned_output_tokens for r in records)
    assert summary.output_tokens == sum(r.output_tokens or 0 for r in records)
    assert summary.input_tokens == sum(r.input_tokens or 0 for r in records)
    assert summary.cached_tokens == sum(r.cached_tokens or 0 for r in records)
    assert progress[-1].n_ended == 12
    for record in records:
        assert record.n_chunks == record.planned_output_tokens  # the role message is no chunk
        assert len(record.gaps_us) == record.n_chunks - 1
        assert record.finish_reason == "length"
        assert record.ttft_s is not None
        assert record.ttft_s >= 0.01  # what the server waits before its first chunk
        assert record.e2e_s is not None
        total_us = round(record.ttft_s * 1e6) + sum(record.gaps_us)
        assert total_us <= round(record.e2e_s * 1e6)
        assert record.sent_unix_ns is not None
        assert record.sent_unix_ns >= record.scheduled_unix_ns
        assert record.first_chunk_unix_ns is not None
        assert record.first_chunk_unix_ns - record.sent_unix_ns == round(record.ttft_s * 1e6) * 1000


def test_headers_carry_the_records_ids(upstream: Upstream, tmp_path: Path) -> None:
    run_replay(config(upstream, tmp_path, slo_class="interactive", api_key="k-1"))
    by_id = {seen.headers["X-Request-Id"]: seen for seen in upstream.seen}
    records = read_records(tmp_path / "r.jsonl")
    assert len(by_id) == len({r.trace_id for r in records}) == len(records)
    for record in records:
        seen = by_id[record.request_id]
        version, trace_id, parent, flags = seen.headers["traceparent"].split("-")
        assert (version, trace_id, len(parent), flags) == ("00", record.trace_id, 16, "01")
        assert seen.headers["X-Tenant-Id"] == record.tenant_id
        assert seen.headers["X-Slo-Class"] == "interactive"
        assert seen.headers["X-Intended-Start-Unix-Nano"] == str(record.scheduled_unix_ns)
        assert seen.headers["X-Conversation-Id"] == record.conversation_id
        assert seen.headers["Authorization"] == "Bearer k-1"
        assert seen.json["stream_options"] == {"include_usage": True}
        assert seen.json["max_tokens"] == record.planned_output_tokens


def test_a_seed_gives_the_same_bodies_and_new_ids(upstream: Upstream, tmp_path: Path) -> None:
    for _ in range(2):
        run_replay(config(upstream, tmp_path, seed=7))
    run_replay(config(upstream, tmp_path, seed=8))
    bodies = [seen.body for seen in upstream.seen]
    assert sorted(bodies[:8]) == sorted(bodies[8:16])
    assert sorted(bodies[:8]) != sorted(bodies[16:])
    assert len({seen.headers["X-Request-Id"] for seen in upstream.seen}) == 24


def test_requests_leave_on_time_while_the_server_is_stuck(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.first_s = 1.0
    summary = run_replay(config(upstream, tmp_path, n_requests=20, max_output_tokens=2))
    records = read_records(tmp_path / "r.jsonl")
    assert summary.n_by_outcome == {"completed": 20}
    last_sent = max(r.sent_unix_ns or 0 for r in records)
    first_ended = min(r.ended_unix_ns or 0 for r in records)
    assert last_sent < first_ended  # a closed loop would have waited for answers


def test_ends_of_every_kind_are_explicit(upstream: Upstream, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"status": 429}, {}, "rejected"),
        ({"status": 500}, {}, "failed"),
        ({"first_s": 5.0}, {"timeout_s": 0.2}, "timed_out"),
        ({"first_s": 0.0}, {"cancel_ratio": 1.0}, "cancelled"),
        ({"script": [b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', None]}, {}, "failed"),
        ({"script": [b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n']}, {}, "failed"),
        ({"script": [b'data: {"error":{"message":"x","code":"worker_died"}}\n\n']}, {}, "failed"),
    ]
    for server, client, outcome in cases:
        upstream.script, upstream.status, upstream.first_s = None, 200, 0.01
        for name, value in server.items():
            setattr(upstream, name, value)
        summary = run_replay(config(upstream, tmp_path, n_requests=3, **client))
        assert summary.n_by_outcome == {outcome: 3}, server
        assert (summary.input_tokens, summary.n_without_usage) == (None, 3)
        for record in read_records(tmp_path / "r.jsonl"):
            assert record.error
            assert record.ended_unix_ns is not None
            if "status" in server:
                assert record.http_status == server["status"]


def test_completions_api_sends_a_prompt(upstream: Upstream, tmp_path: Path) -> None:
    summary = run_replay(config(upstream, tmp_path, api="completions"))
    assert summary.n_by_outcome == {"completed": 8}
    assert {seen.path for seen in upstream.seen} == {"/v1/completions"}
    assert all(isinstance(seen.json["prompt"], str) for seen in upstream.seen)


def test_bad_input_is_one_sentence(upstream: Upstream, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"shipped workloads are .*demo"):
        run_replay(config(upstream, tmp_path, source="nothing-here"))
    with pytest.raises(ReplayError, match=r"no server answers at http://127\.0\.0\.1:9 "):
        run_replay(ReplayConfig.create(url="http://127.0.0.1:9", n_requests=1))
    with pytest.raises(ReplayError, match="cannot write records to"):
        run_replay(config(upstream, tmp_path, out=Path("/proc/none/r.jsonl")))
    with pytest.raises(ReplayError, match=r"url: must begin with http"):
        ReplayConfig.create(url="localhost:8100")
    with pytest.raises(ReplayError, match=r"surprise: "):
        ReplayConfig.create(url="http://localhost", surprise=1)


def test_sigterm_stops_an_endless_run_and_every_row_is_written(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.first_s = 60.0
    out = tmp_path / "r.jsonl"
    script = (
        "from serving_probe.replay.core import ReplayConfig\n"
        "from serving_probe.replay.load import run_replay\n"
        f"config = ReplayConfig.create(url={upstream.url!r}, rate_scale=100, drain_s=0.1,"
        f" out={str(out)!r})\n"
        "print(run_replay(config).n_by_outcome, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while len(upstream.seen) < 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    outcomes = [json.loads(line)["outcome"] for line in out.read_text().splitlines()]
    assert set(outcomes) == {"cancelled"}
    assert printed.strip() == str({"cancelled": len(outcomes)})


def test_quantile_is_linear_between_ranks() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.99) == 3.0
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
