"""Real telemetry for the pages' tests: the probe's own emitter, sent to a real collector.

Two tenants, forty requests in the last two minutes, on one prefill and one decode worker: every
eighth waits 2.5 s for its first token, one fails, one is refused.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from opentelemetry.metrics import Observation
from opentelemetry.trace import set_span_in_context

from serving_probe.attempt import AttemptRecorder
from serving_probe.contract import Gen, Leg, Metric, Outcome, Role, Root, Span
from serving_probe.emit import Telemetry, TelemetryConfig, context_from, end_root, start_root

N_REQUESTS = 40
SLOW_EVERY = 8
FAILED, REFUSED = 11, 13
MS = 1_000_000


@contextmanager
def workers(endpoint: str) -> Iterator[dict[Role, Telemetry]]:
    """Two workers that report themselves up."""
    config = TelemetryConfig(endpoint=endpoint, export_delay_s=0.1, report_interval_s=0.5)
    with ExitStack() as stack:
        made = {}
        for role in (Role.PREFILL, Role.DECODE):
            telemetry = stack.enter_context(
                Telemetry(
                    config,
                    {
                        Leg.WORKER_ID: f"{role}-0",
                        Leg.WORKER_ROLE: role,
                        Leg.WORKER_TYPE: f"cpu-demo-{role}",
                        Leg.WORKER_POOL: role,
                        Leg.WORKER_ACCELERATORS: 1,
                        Leg.REPORT_INTERVAL_S: 60.0,
                    },
                )
            )
            telemetry.gauge(Metric.UP, lambda: [Observation(1)], "1")
            made[role] = telemetry
        yield made


def send(endpoint: str) -> None:
    """Send everything; returns when the collector has it."""
    config = TelemetryConfig(endpoint=endpoint, export_delay_s=0.1, report_interval_s=0.5)
    gateway = Telemetry(config, {"service.name": "gateway"})
    with gateway, workers(endpoint) as up:
        first_ns = time.time_ns() - 120_000 * MS
        for i in range(N_REQUESTS):
            _request(gateway, up, i, first_ns + i * 2_800 * MS)


def _request(gateway: Telemetry, up: dict[Role, Telemetry], i: int, arrived_ns: int) -> None:
    ttft_ms = 2500 if i % SLOW_EVERY == 0 else 120 + 10 * (i % 5)
    n_tokens = 12 + i % 6
    recorder = AttemptRecorder(arrived_unix_ns=arrived_ns)
    status, outcome, error = 200, Outcome.COMPLETED, None
    if i == REFUSED:
        status, outcome, error, n_tokens = 429, Outcome.REJECTED, "queue_full", 0
    if i == FAILED:
        status, outcome, error, n_tokens = 200, Outcome.FAILED, "worker_died", 4
    gap_ms = [0, *(300 if k == 5 else 40 + k for k in range(1, n_tokens))]
    offsets_ms = [ttft_ms + sum(gap_ms[: k + 1]) for k in range(n_tokens)]
    recorder.offsets_us = [1000 * offset for offset in offsets_ms]
    recorder.chunk_tokens = [1] * n_tokens
    recorder.chunk_choices = [0] * n_tokens
    recorder.ended_us = 1000 * (offsets_ms[-1] if offsets_ms else 3) + 500
    recorder.outcome, recorder.error_type = outcome, error

    root = start_root(gateway, "chat tiny", context_from(None), recorder)
    if n_tokens:
        _legs(up, set_span_in_context(root), arrived_ns, ttft_ms, offsets_ms[-1], i)
    done = {Gen.FINISH_REASONS: ["stop"]} if outcome is Outcome.COMPLETED else {}
    end_root(
        root,
        recorder,
        {
            Gen.OPERATION: "chat",
            Gen.PROVIDER: "tokenmill",
            Gen.REQUEST_MODEL: "tiny",
            Gen.RESPONSE_MODEL: "tiny",
            Gen.STREAM: True,
            Gen.INPUT_TOKENS: 100 + i,
            Gen.CACHE_READ_TOKENS: 32 if i % 2 else 0,
            Gen.OUTPUT_TOKENS: n_tokens,
            Gen.HTTP_STATUS: status,
            Root.REQUEST_ID: f"req{i:03d}",
            Root.ATTEMPT: 1,
            Root.TENANT_ID: "acme" if i % 3 == 0 else "default",
            **done,
        },
    )


def _legs(
    up: dict[Role, Telemetry], parent: object, arrived_ns: int, ttft_ms: int, end_ms: int, i: int
) -> None:
    reused = 32 if i % 2 else 0

    def child(role: Role, name: Span, start_ms: float, stop_ms: float, **attrs: object) -> None:
        own = {Leg[key.upper()]: value for key, value in attrs.items()}
        worker = {
            Leg.WORKER_ID: f"{role}-0",
            Leg.WORKER_ROLE: role,
            Leg.WORKER_TYPE: f"cpu-demo-{role}",
            Leg.WORKER_POOL: role,
        }
        up[role].child(
            name,
            parent,  # type: ignore[arg-type]  # an OpenTelemetry context
            arrived_ns + round(start_ms * MS),
            arrived_ns + round(stop_ms * MS),
            worker | own,
        )

    waited = 0.3 * ttft_ms
    child(Role.PREFILL, Span.QUEUE, 1, waited)
    child(
        Role.PREFILL,
        Span.PREFILL,
        waited,
        ttft_ms - 5,
        device_seconds=0.05,
        prompt_tokens=100 + i,
        computed_tokens=100 + i - reused,
        reused_tokens=reused,
        first_token_us=round((ttft_ms - 5 - waited) * 1000),
        generated_tokens=1,
    )
    child(Role.DECODE, Span.KV_TRANSFER, ttft_ms - 4, ttft_ms - 1, kv_bytes=1 << 20)
    child(Role.DECODE, Span.DECODE, ttft_ms + 1, end_ms, device_seconds=0.1, generated_tokens=11)
