"""The two decoders beside each other in one run: spans per CPU-second, wire bytes to segment rows.

    python benchmarks/ingest_routes.py [--spans 5120] [--repeats 3]

Read the ratio; the rates move with what else the machine does.
"""

import argparse
import random
import time
from collections.abc import Callable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from ingest import wire, wire_upb
from ingest.dialects import Dialects
from ingest.frames import Frame, Signal
from ingest.rows import segment_rows

SPANS_PER_TRACE = 5
GAPS = 200
Decode = Callable[[Signal, list[bytes]], Frame]


def payload(n_spans: int, seed: int) -> bytes:
    """An export request of traces of five spans, one of which carries 200 gaps."""
    rng = random.Random(seed)
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add()
    of_resource.resource.attributes.append(_text("service.name", "gateway"))
    scope = of_resource.scope_spans.add()
    scope.scope.name = "tokenmill.probe"
    for index in range(n_spans):
        span = scope.spans.add(
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
            name="decode",
            kind=1,
            start_time_unix_nano=10**18 + index,
            end_time_unix_nano=10**18 + index + 10**9,
        )
        span.attributes.extend(
            [
                _text("tokenmill.request.id", f"request-{seed}-{index}"),
                _text("tokenmill.worker.id", f"worker-{index % 8}"),
                _text("gen_ai.request.model", "smollm2-135m"),
                KeyValue(key="tokenmill.device_seconds", value=AnyValue(double_value=0.25)),
            ]
        )
        for number in range(8):
            span.attributes.append(_int(f"some.other.number.{number}", number))
            span.attributes.append(_text(f"some.other.text.{number}", f"value {number}"))
        for name in ("input_tokens", "output_tokens", "cache_read.input_tokens"):
            span.attributes.append(_int(f"gen_ai.usage.{name}", rng.randrange(4096)))
        if index % SPANS_PER_TRACE == 0:
            gaps = [AnyValue(int_value=rng.randrange(8_000, 60_000)) for _ in range(GAPS)]
            value = AnyValue(array_value=ArrayValue(values=gaps))
            span.attributes.append(KeyValue(key="tokenmill.chunk.gaps_us", value=value))
    return request.SerializeToString()


def spans_per_cpu_second(decode: Decode, bodies: list[bytes], per_call: int, repeats: int) -> float:
    """The best of `repeats`: what else runs can only make it slower."""
    dialects = Dialects.load()
    best = 0.0
    for _ in range(repeats):
        began, n_rows = time.process_time(), 0
        for start in range(0, len(bodies), per_call):
            group = bodies[start : start + per_call]
            frame = decode(Signal.SPAN, group)
            n_rows += segment_rows(frame, dialects, [0] * len(group), "bench").table.num_rows
        best = max(best, n_rows / (time.process_time() - began))
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=5120)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{'spans/body':>10} {'bodies/call':>11} {'ptars':>10} {'upb':>10} {'ratio':>6}")
    for spans_per_body, per_call in ((48, 1), (48, 16), (512, 1), (512, 5)):
        count = max(per_call, options.spans // spans_per_body)
        bodies = [payload(spans_per_body, seed) for seed in range(count)]
        fast = spans_per_cpu_second(wire.decode, bodies, per_call, options.repeats)
        slow = spans_per_cpu_second(wire_upb.decode, bodies, per_call, options.repeats)
        row = f"{spans_per_body:>10} {per_call:>11} {fast:>10,.0f} {slow:>10,.0f}"
        print(f"{row} {fast / slow:>5.1f}×")


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _int(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))


if __name__ == "__main__":
    main()
