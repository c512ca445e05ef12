"""The span contract's vocabulary: every span, attribute and metric name the probe emits.

Only names live here. When they are set is the emitters' business (`attempt`, `emit`, the stack's
workers); what they mean in a number is `sql/`'s. The prose form is `docs/span-contract.md`, which
a test compares with this file.
"""

from enum import StrEnum
from typing import Final

SCOPE: Final = "tokenmill.probe"
"""Instrumentation scope of every span and metric the probe emits."""

CONTRACT_VERSION: Final = "1"
"""Sent as the scope's version; raised when a name changes its meaning."""


class Outcome(StrEnum):
    """How an attempt ended, as the probe saw it."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"


class Role(StrEnum):
    """The part of an attempt a worker does."""

    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"


class Span(StrEnum):
    """Names of the child spans; the root's name is `chat {model}`."""

    QUEUE = "queue"
    PREFILL = "prefill"
    KV_TRANSFER = "kv_transfer"
    DECODE_WAIT = "decode_wait"
    DECODE = "decode"


class Gen(StrEnum):
    """OpenTelemetry GenAI and HTTP attributes of the root span."""

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_ID = "gen_ai.response.id"
    STREAM = "gen_ai.request.stream"
    MAX_TOKENS = "gen_ai.request.max_tokens"
    CHOICE_COUNT = "gen_ai.request.choice.count"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    CONVERSATION_ID = "gen_ai.conversation.id"
    ERROR_TYPE = "error.type"
    HTTP_STATUS = "http.response.status_code"
    HTTP_ROUTE = "http.route"


class Root(StrEnum):
    """tokenmill attributes of the root span."""

    REQUEST_ID = "tokenmill.request.id"
    ATTEMPT = "tokenmill.attempt"
    TENANT_ID = "tokenmill.tenant.id"
    SLO_CLASS = "tokenmill.slo.class"
    OUTCOME = "tokenmill.outcome"
    INTENDED_START = "tokenmill.intended_start_unix_nano"
    FIRST_MESSAGE_US = "tokenmill.first_message_us"
    CHUNK_GAPS_US = "tokenmill.chunk.gaps_us"
    CHUNK_TOKENS = "tokenmill.chunk.tokens"
    CHUNK_CHOICES = "tokenmill.chunk.choices"


class Leg(StrEnum):
    """tokenmill attributes of the child spans and of a worker's resource."""

    WORKER_ID = "tokenmill.worker.id"
    WORKER_ROLE = "tokenmill.worker.role"
    WORKER_TYPE = "tokenmill.worker.type"
    WORKER_POOL = "tokenmill.worker.pool"
    WORKER_ACCELERATORS = "tokenmill.worker.n_accelerators"
    REPORT_INTERVAL_S = "tokenmill.worker.report_interval_s"
    DEVICE_SECONDS = "tokenmill.device_seconds"
    CPU_SECONDS = "tokenmill.cpu_seconds"
    FIRST_TOKEN_US = "tokenmill.first_token_us"
    PROMPT_TOKENS = "tokenmill.prompt_tokens"
    COMPUTED_TOKENS = "tokenmill.computed_tokens"
    GENERATED_TOKENS = "tokenmill.generated_tokens"
    REUSED_TOKENS = "tokenmill.cache.reused_tokens"
    BLOCK_TOKENS = "tokenmill.cache.block_tokens"
    BLOCK_HASHES = "tokenmill.cache.block_hashes"
    FOREIGN_TENANT_TOKENS = "tokenmill.cache.foreign_tenant_tokens"
    KV_BYTES = "tokenmill.kv.bytes"
    KV_SETUP_S = "tokenmill.kv.setup_s"
    KV_OVERLAPPED_S = "tokenmill.kv.overlapped_s"
    KV_SRC_DTYPE = "tokenmill.kv.src_dtype"
    KV_DST_DTYPE = "tokenmill.kv.dst_dtype"
    KV_SRC_WORKER = "tokenmill.kv.src_worker_id"
    KV_OUTCOME = "tokenmill.kv.outcome"


class Metric(StrEnum):
    """Worker telemetry, sent as OTLP metrics under the worker's resource attributes."""

    UP = "tokenmill.worker.up"
    BUSY_SECONDS = "tokenmill.worker.busy_seconds"
    CPU_SECONDS = "tokenmill.worker.cpu_seconds"
    QUEUE_DEPTH = "tokenmill.worker.queue_depth"
    RUNNING = "tokenmill.worker.running"
    KV_BLOCKS = "tokenmill.kv.blocks"
    KV_CACHED_BYTES = "tokenmill.kv.cached_bytes"
    SPANS_DROPPED = "tokenmill.probe.spans_dropped"


PHASE: Final = "tokenmill.phase"
"""Attribute of `Metric.BUSY_SECONDS` and `CPU_SECONDS`: `prefill`, `decode` or `kv_transfer`."""

BLOCK_STATE: Final = "tokenmill.kv.state"
"""Attribute of `Metric.KV_BLOCKS`: `free`, `cached` (resident, not in use) or `used`."""
