"""The columns of a segment: what one committed Parquet file holds, for all three signals.

A commit is one file (eight fsynced files cost five times one), so spans, log records and metric
points share a schema and `signal` tells them apart; columns of the other signals are NULL.
Times are unix nanoseconds as BIGINT, exact and cheap to subtract. `sql/staging` is the only
reader that gives these columns a meaning.
"""

from typing import Final

import pyarrow as pa

FORMAT_VERSION: Final = 1
"""Version of the store's layout and of this schema, kept in `format.json`."""

N_BUCKETS: Final = 16
"""Buckets a span is spread over by its trace id, so that compaction can work on one at a time."""

KEY_VALUES: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
"""Left-over attributes. Not a MAP: one duplicate key would make the file unreadable in DuckDB."""

COMMON: Final = [
    ("signal", pa.string()),  # span | log | metric
    ("received_unix_ns", pa.int64()),
    ("receiver", pa.string()),
    ("dialect", pa.string()),  # the rule that matched, e.g. "tokenmill", "other"
    ("resource", KEY_VALUES),
    ("service_name", pa.string()),
    ("service_instance_id", pa.string()),
    ("scope_name", pa.string()),
    ("attributes", KEY_VALUES),  # what no column below took
    # Who: on spans from the span, else from the resource; on metrics from the resource.
    ("tenant_id", pa.string()),
    ("worker_id", pa.string()),
    ("worker_role", pa.string()),
    ("worker_type", pa.string()),
    ("worker_pool", pa.string()),
    ("n_accelerators", pa.int64()),
    ("report_interval_s", pa.float64()),
]

SPAN: Final = [
    ("bucket", pa.int16()),
    ("trace_id", pa.binary()),  # 16 bytes
    ("span_id", pa.binary()),  # 8 bytes
    ("parent_span_id", pa.binary()),  # NULL at a trace's root
    ("trace_state", pa.string()),
    ("name", pa.string()),
    ("kind", pa.int8()),  # OTLP enum: 1 internal, 2 server, 3 client
    ("start_unix_ns", pa.int64()),
    ("end_unix_ns", pa.int64()),
    ("status_code", pa.int8()),  # OTLP enum: 0 unset, 1 ok, 2 error
    ("status_message", pa.string()),
    ("dropped_attributes", pa.int64()),
    ("dropped_events", pa.int64()),
    # The attempt, from the root span
    ("operation_name", pa.string()),
    ("provider_name", pa.string()),
    ("request_model", pa.string()),
    ("response_model", pa.string()),
    ("response_id", pa.string()),
    ("conversation_id", pa.string()),
    ("is_stream", pa.bool_()),
    ("max_tokens", pa.int64()),
    ("n_choices", pa.int64()),
    ("input_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("cache_read_tokens", pa.int64()),
    ("reasoning_tokens", pa.int64()),
    ("finish_reasons", pa.list_(pa.string())),
    ("time_to_first_chunk_s", pa.float64()),
    ("error_type", pa.string()),
    ("http_status", pa.int64()),
    ("http_route", pa.string()),
    ("request_id", pa.string()),
    ("attempt", pa.int64()),
    ("slo_class", pa.string()),
    ("outcome", pa.string()),
    ("intended_start_unix_ns", pa.int64()),
    ("first_message_us", pa.int64()),
    ("chunk_gaps_us", pa.list_(pa.int32())),  # [0] is arrival to first chunk
    ("chunk_tokens", pa.list_(pa.int32())),
    ("chunk_choices", pa.list_(pa.int32())),
    # The leg, from child spans
    ("device_seconds", pa.float64()),
    ("cpu_seconds", pa.float64()),
    ("first_token_us", pa.int64()),
    ("prompt_tokens", pa.int64()),
    ("computed_tokens", pa.int64()),
    ("generated_tokens", pa.int64()),
    ("reused_tokens", pa.int64()),
    ("block_tokens", pa.int64()),
    ("block_hashes", pa.list_(pa.string())),
    ("foreign_tenant_tokens", pa.int64()),
    ("kv_bytes", pa.int64()),
    ("kv_setup_s", pa.float64()),
    ("kv_overlapped_s", pa.float64()),
    ("kv_src_dtype", pa.string()),
    ("kv_dst_dtype", pa.string()),
    ("kv_src_worker_id", pa.string()),
    ("kv_outcome", pa.string()),
]

METRIC: Final = [
    ("metric_name", pa.string()),
    ("metric_unit", pa.string()),
    ("metric_kind", pa.string()),  # gauge | sum | histogram | summary
    ("metric_is_cumulative", pa.bool_()),
    ("metric_is_monotonic", pa.bool_()),
    ("point_start_unix_ns", pa.int64()),
    ("point_unix_ns", pa.int64()),
    ("point_value", pa.float64()),  # a histogram's or summary's sum
    ("point_count", pa.int64()),
    ("bucket_bounds", pa.list_(pa.float64())),
    ("bucket_counts", pa.list_(pa.int64())),
    ("point_attributes", KEY_VALUES),
]

LOG: Final = [
    ("event_name", pa.string()),
    ("log_unix_ns", pa.int64()),
    ("severity", pa.string()),
    ("body", pa.string()),
]

SEGMENT: Final = pa.schema(COMMON + SPAN + METRIC + LOG)
"""Every column of a segment. Log records reuse `trace_id`, `span_id` and `attributes`."""
