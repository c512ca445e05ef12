"""Writes a sequence's child spans: what each phase took on this worker, ended well or not.

Whatever a sequence consumed is in exactly one span, so the spans' device seconds add up to the
worker's busy time. Knows the contract's names; reads `Sequence`, changes nothing in it.
"""

from collections.abc import Callable

from opentelemetry.context import Context

from serving_probe.attempt import Attributes
from serving_probe.contract import Gen, Leg, Role, Span
from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.meter import Phase
from serving_probe.stack.sequence import Sequence
from serving_probe.stack.transfer.link import TransferState

EmitChild = Callable[[str, Context, int, int, Attributes], None]
"""`Telemetry.child`: name, parent, start and end in wall-clock ns, attributes."""


class LegSpans:
    """Emits the spans of one worker's sequences."""

    def __init__(
        self, emit: EmitChild, worker_id: str, role: Role, worker_type: str, pool: str, dtype: str
    ) -> None:
        self._emit = emit
        self._dtype = dtype
        self._worker: Attributes = {
            Leg.WORKER_ID: worker_id,
            Leg.WORKER_ROLE: role,
            Leg.WORKER_TYPE: worker_type,
            Leg.WORKER_POOL: pool,
        }

    def queue(self, seq: Sequence, end_ns: int, error: str | None = None) -> None:
        """From the router's dispatch to the first prefill step."""
        self._child(Span.QUEUE, seq, seq.dispatched_ns, end_ns, {}, error)

    def prefill(self, seq: Sequence, end_ns: int, error: str | None = None) -> None:
        """From the first prefill step to the end of the one that gave token 1."""
        if seq.prefill_started_ns is None:
            return
        n_known = min(seq.n_computed, len(seq.prompt))
        attrs: Attributes = {
            **_spent(seq, Phase.PREFILL),
            Leg.PROMPT_TOKENS: len(seq.prompt),
            Leg.COMPUTED_TOKENS: max(0, n_known - seq.n_reused),
            Leg.REUSED_TOKENS: seq.n_reused,
            Leg.FOREIGN_TENANT_TOKENS: 0,  # a block's hash covers its tenant: none is ever found
            Leg.BLOCK_TOKENS: BLOCK_TOKENS,
            Leg.BLOCK_HASHES: list(seq.hashes),
            Leg.GENERATED_TOKENS: 0,
        }
        if seq.prefill_ended_ns is not None:
            attrs[Leg.GENERATED_TOKENS] = 1
            attrs[Leg.FIRST_TOKEN_US] = (seq.prefill_ended_ns - seq.prefill_started_ns) // 1000
        self._child(Span.PREFILL, seq, seq.prefill_started_ns, end_ns, attrs, error)

    def kv_transfer(self, seq: Sequence, end_ns: int, error: str | None = None) -> None:
        """From the message's arrival to the pages in place; `setup_s` is until bytes can move."""
        transfer = seq.transfer
        assert transfer is not None, "only a sequence with an export has a transfer"
        state = transfer.state if transfer.state.is_final else TransferState.FAILED
        attrs: Attributes = {
            **_spent(seq, Phase.KV_TRANSFER),
            Leg.KV_BYTES: transfer.n_moved * transfer.export.page_bytes,
            Leg.KV_SETUP_S: transfer.setup_s,
            Leg.KV_OVERLAPPED_S: 0.0,  # the whole prompt is computed before its pages are offered
            Leg.KV_SRC_DTYPE: transfer.export.dtype,
            Leg.KV_DST_DTYPE: self._dtype,
            Leg.KV_SRC_WORKER: transfer.export.worker_id,
            Leg.KV_OUTCOME: state,
        }
        self._child(Span.KV_TRANSFER, seq, seq.received_ns, end_ns, attrs, error)

    def decode_wait(self, seq: Sequence, end_ns: int, error: str | None = None) -> None:
        """From the pages in place to the first decode step."""
        if seq.kv_ready_ns is not None:
            self._child(Span.DECODE_WAIT, seq, seq.kv_ready_ns, end_ns, {}, error)

    def decode(self, seq: Sequence, end_ns: int, error: str | None = None) -> None:
        """From the first decode step to the last token."""
        if seq.decode_started_ns is None:
            return
        n_prefilled = 1 if seq.prefill_ended_ns is not None else 0
        attrs: Attributes = {
            **_spent(seq, Phase.DECODE),
            Leg.GENERATED_TOKENS: seq.n_generated_here - n_prefilled,
        }
        self._child(Span.DECODE, seq, seq.decode_started_ns, end_ns, attrs, error)

    def cut_short(self, seq: Sequence, end_ns: int, error: str) -> None:
        """The spans of a sequence that ends here before its time, in whatever phase it is."""
        if seq.decode_started_ns is not None:
            self.decode(seq, end_ns, error)
        elif seq.kv_ready_ns is not None:
            self.decode_wait(seq, end_ns, error)
        elif seq.transfer is not None:
            self.kv_transfer(seq, end_ns, error)
        elif seq.prefill_started_ns is None:
            self.queue(seq, end_ns, error)
        elif seq.prefill_ended_ns is None:
            self.queue(seq, seq.prefill_started_ns)
            self.prefill(seq, end_ns, error)

    def _child(
        self,
        name: Span,
        seq: Sequence,
        start_ns: int,
        end_ns: int,
        attrs: Attributes,
        error: str | None,
    ) -> None:
        failed: Attributes = {Gen.ERROR_TYPE: error} if error else {}
        self._emit(name, seq.context, start_ns, end_ns, self._worker | attrs | failed)


def _spent(seq: Sequence, phase: Phase) -> Attributes:
    return {
        Leg.DEVICE_SECONDS: seq.spent.wall_ns[phase] / 1e9,
        Leg.CPU_SECONDS: seq.spent.cpu_ns[phase] / 1e9,
    }
