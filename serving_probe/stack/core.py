"""The stack's vocabulary: the messages that cross process borders, and nothing that acts on them.

Router and workers are separate processes joined by ZeroMQ in a star: each worker's DEALER talks to
the router's ROUTER socket, messages are msgpack. A request's way: `Prefill` to a prefill worker,
`PrefillDone` back with token 1 and an exported KV lease, `Decode` to a decode worker, which pulls
the pages one-sidedly, answers `Tokens` per step, and lets the lease go with `Release`.
Deadlines travel as remaining seconds, never as another process's clock.
"""

from typing import Final

import msgspec

from serving_probe.contract import Role

BLOCK_TOKENS: Final = 16
"""Tokens in one KV page, and in one link of the prefix hash chain."""


class Sampling(msgspec.Struct, frozen=True):
    """How output tokens are chosen and when they stop."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class KvExport(msgspec.Struct, frozen=True):
    """A prefill worker's offer of one sequence's pages, readable until the lease ends."""

    lease_id: str
    worker_id: str
    segment: str  # name of the shared-memory segment that holds the pool
    pages: tuple[int, ...]  # page numbers in the pool, in sequence order
    n_tokens: int
    page_bytes: int
    dtype: str
    layout: str  # model hash, block size and page shape; unlike layouts are incompatible
    ttl_s: float  # remaining seconds of the lease when sent


class Prefill(msgspec.Struct, frozen=True, tag=True):
    """Router to prefill (or unified) worker: compute this prompt."""

    attempt_id: str
    traceparent: str
    token_ids: tuple[int, ...]
    cache_scope: str  # tenant whose blocks this prompt may reuse and feed
    sampling: Sampling
    dispatched_unix_ns: int


class Decode(msgspec.Struct, frozen=True, tag=True):
    """Router to decode worker: pull the pages and go on from `first_token`."""

    attempt_id: str
    traceparent: str
    token_ids: tuple[int, ...]  # the prompt
    first_token: int
    sampling: Sampling
    export: KvExport
    dispatched_unix_ns: int


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Router to any worker: the caller has gone; drop the sequence and its lease."""

    attempt_id: str


class Release(msgspec.Struct, frozen=True, tag=True):
    """Decode worker to prefill worker, through the router: the pages were read (or won't be)."""

    lease_id: str
    worker_id: str  # who holds the lease


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Router to worker: finish what runs, take nothing new, exit."""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Worker to router: ready to serve; also sent after a restart, under a new `incarnation`."""

    worker_id: str
    role: Role
    worker_type: str
    pool: str
    incarnation: str
    max_batch: int
    n_pages: int
    model_hash: str
    dtype: str = "float32"  # number format of the KV: part of every block's hash


class Status(msgspec.Struct, frozen=True, tag=True):
    """Worker to router, every step or idle tick at most four times a second: load and life."""

    worker_id: str
    queued: int
    running: int
    free_pages: int


class PrefillDone(msgspec.Struct, frozen=True, tag=True):
    """Prefill worker to router: token 1, and the pages unless the sequence already ended."""

    attempt_id: str
    worker_id: str
    first_token: int
    finish_reason: str | None  # set when token 1 was also the last
    reused_tokens: int
    export: KvExport | None


class Tokens(msgspec.Struct, frozen=True, tag=True):
    """Decode (or unified) worker to router: the step's token, and the end when there is one."""

    attempt_id: str
    worker_id: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    reused_tokens: int | None = None  # on a unified worker's first message only


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Worker to router: this attempt can't go on here; `reason` is for a person and a log."""

    attempt_id: str
    worker_id: str
    reason: str
    error_type: str = "worker_error"  # e.g. kv_transfer_failed, kv_incompatible, prompt_too_long


class KvStored(msgspec.Struct, frozen=True, tag=True):
    """Worker to router: these blocks are now resident and may be reused."""

    worker_id: str
    block_hashes: tuple[str, ...]


class KvRemoved(msgspec.Struct, frozen=True, tag=True):
    """Worker to router: these blocks were evicted."""

    worker_id: str
    block_hashes: tuple[str, ...]


ToWorker = Prefill | Decode | Abort | Release | Drain
ToRouter = Hello | Status | PrefillDone | Tokens | Failed | Release | KvStored | KvRemoved

_encoder = msgspec.msgpack.Encoder()
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_to_router = msgspec.msgpack.Decoder(ToRouter)


def encode(message: ToWorker | ToRouter) -> bytes:
    """The wire form of a message."""
    return _encoder.encode(message)


def decode_to_worker(frame: bytes) -> ToWorker:
    """A message for a worker; raises `msgspec.DecodeError` on anything else."""
    return _to_worker.decode(frame)


def decode_to_router(frame: bytes) -> ToRouter:
    """A message for the router; raises `msgspec.DecodeError` on anything else."""
    return _to_router.decode(frame)
