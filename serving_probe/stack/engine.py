"""A worker's inside: takes messages, computes step by step, leaves messages and spans.

Knows no sockets and no processes. Pages are reserved for a sequence's whole length before its
first step, so a full pool makes the next one wait and never takes memory from one that runs.
"""

import time
from collections.abc import Callable

from serving_probe.contract import Role
from serving_probe.stack.admission import pages_needed, refusal
from serving_probe.stack.arrivals import Arrivals
from serving_probe.stack.core import (
    BLOCK_TOKENS,
    Decode,
    Failed,
    KvExport,
    KvRemoved,
    KvStored,
    Prefill,
    PrefillDone,
    Release,
    Tokens,
    ToRouter,
)
from serving_probe.stack.kv.hashing import block_hashes
from serving_probe.stack.kv.pool import PagePool
from serving_probe.stack.kv.prefix import PrefixCache
from serving_probe.stack.legspans import LegSpans
from serving_probe.stack.meter import Phase, Spent, Stopwatch, shares
from serving_probe.stack.model.llama import Model, OnLayer, Row
from serving_probe.stack.sampling import choose_token, finish_reason
from serving_probe.stack.scheduler import POLICIES, Batch, Budget, Prompt, State
from serving_probe.stack.sequence import Sequence
from serving_probe.stack.transfer.link import Link, TransferState


class Engine:
    """One worker's sequences, pages and steps."""

    def __init__(
        self,
        worker_id: str,
        role: Role,
        model: Model,
        pool: PagePool,
        link: Link,
        spans: LegSpans,
        *,
        max_batch: int,
        max_prefill_tokens: int,
        lease_s: float,
        pulse: Callable[[], None] | None = None,
    ) -> None:
        """`pulse` is called often during a long step, for signs of life."""
        self._worker_id = worker_id
        self._role = role
        self._model = model
        self._pool = pool
        self._ledger = pool.ledger
        self._prefix = PrefixCache(pool.ledger)
        self._link = link
        link.register(pool)
        self._spans = spans
        self._policy = POLICIES[role]
        self._max_batch = max_batch
        self._max_prefill_tokens = max_prefill_tokens
        self._lease_s = lease_s
        self._on_layer: OnLayer | None = (lambda _: pulse()) if pulse else None
        # Each sequence is in one of these, oldest first; a lease is what remains of one.
        self._prompts: dict[str, Sequence] = {}
        self._decoding: dict[str, Sequence] = {}
        self._leases: dict[str, str] = {}  # attempt → lease
        self._outbox: list[ToRouter] = []
        self.spent = Spent()
        self._arrivals = Arrivals(link, self._ledger, self._n_pages, self.spent)

    @property
    def n_queued(self) -> int:
        """Sequences that wait: for their prompt's first step, for pages, or for KV."""
        n_started = sum(1 for seq in list(self._prompts.values()) if seq.pages)
        return len(self._prompts) - n_started + len(self._arrivals)

    @property
    def n_running(self) -> int:
        """Sequences in computation."""
        n_started = sum(1 for seq in list(self._prompts.values()) if seq.pages)
        return n_started + len(self._decoding)

    @property
    def n_leases(self) -> int:
        """Exports that nobody has released yet."""
        return len(self._leases)

    @property
    def has_work(self) -> bool:
        """Another step would do something, or may soon."""
        return bool(self._prompts or self._arrivals or self._decoding)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """All sequences that haven't ended here."""
        return (*self._prompts.values(), *self._arrivals, *self._decoding.values())

    def submit(self, message: Prefill | Decode) -> None:
        """Queue a prompt or a handed-over sequence; `Failed` when it can never run here."""
        seq = Sequence.of(message)
        reason = self._refusal(seq)
        if reason:
            self._drop(seq, "refused")
            self._outbox.append(Failed(seq.attempt_id, self._worker_id, reason))
        elif seq.transfer is not None:
            self._arrivals.add(seq)
        else:
            seq.hashes = self._hashes(seq.prompt, seq.cache_scope)
            self._prompts[seq.attempt_id] = seq

    def refuse(self, message: Prefill | Decode, reason: str) -> None:
        """Answer `Failed` to a message that comes at the wrong time."""
        if isinstance(message, Decode):
            self._let_go(message.export)
        self._outbox.append(Failed(message.attempt_id, self._worker_id, reason))

    def abort(self, attempt_id: str) -> None:
        """Drop a sequence or its lease; unknown ids have ended already."""
        seq = (
            self._prompts.pop(attempt_id, None)
            or self._arrivals.pop(attempt_id)
            or self._decoding.pop(attempt_id, None)
        )
        if seq is not None:
            self._drop(seq, "aborted")
        if attempt_id in self._leases:
            self.release(self._leases[attempt_id])

    def release(self, lease_id: str) -> None:
        """Take an export's pages back; a lease that has ended before is no error."""
        self._ledger.release(self._link.release(lease_id))
        self._leases = {a: lease for a, lease in self._leases.items() if lease != lease_id}

    def abort_all(self, reason: str) -> None:
        """Fail everything, for a shutdown; what was consumed still goes out as spans."""
        for seq in self.running:
            self.abort(seq.attempt_id)
            self._outbox.append(Failed(seq.attempt_id, self._worker_id, reason))
        for lease_id in tuple(self._leases.values()):
            self.release(lease_id)

    def step(self) -> bool:
        """Do what can be done now; False when there was nothing to do."""
        for lease_id in self._link.overdue():
            self.release(lease_id)
        arrived, did_move = self._arrivals.advance()
        for seq in arrived:
            self._end_transfer(seq)
        state = State(
            prompts=tuple(
                Prompt(key, seq.n_prompt_left, self._n_pages(seq), bool(seq.pages))
                for key, seq in self._prompts.items()
            ),
            decoding=tuple(self._decoding),
        )
        budget = Budget(self._max_batch, self._max_prefill_tokens, self._prefix.n_allocatable)
        batch = self._policy(state, budget)
        did_compute = bool(batch) and self._compute(batch)
        return did_move or did_compute

    def take_messages(self) -> list[ToRouter]:
        """What goes to the router, in order; each message once."""
        stored, removed = self._prefix.drain_events()
        if removed:
            self._outbox.append(KvRemoved(self._worker_id, removed))
        if stored:
            self._outbox.append(KvStored(self._worker_id, stored))
        taken, self._outbox = self._outbox, []
        return taken

    def _compute(self, batch: Batch) -> bool:
        watch, started_ns = Stopwatch(), time.time_ns()
        prompts = [(self._prompts[c.key], c.n_tokens) for c in batch.chunks]
        prompts = [(seq, n) for seq, n in prompts if self._admit(seq)]
        decodes = [self._decoding[key] for key in batch.decodes]
        rows = []
        for seq, n_tokens in prompts:
            if seq.prefill_started_ns is None:
                seq.prefill_started_ns = started_ns
            until = min(seq.n_computed + n_tokens, len(seq.prompt))
            rows.append(Row(seq.prompt[seq.n_computed : until], seq.n_computed, seq.pages))
        for seq in decodes:
            if seq.decode_started_ns is None:
                seq.decode_started_ns = started_ns
                self._spans.decode_wait(seq, started_ns)
            rows.append(Row(seq.generated[-1:], seq.n_computed, seq.pages))
        if not rows:
            return False
        logits = self._model.forward(rows, self._pool.tensor, self._on_layer)
        sequences = [seq for seq, _ in prompts] + decodes
        advanced = []
        for i, (seq, row) in enumerate(zip(sequences, rows, strict=True)):
            seq.n_computed += len(row.token_ids)
            if seq.n_prompt_left == 0:
                n_before = len(seq.generated)
                seq.generated.append(choose_token(logits[i], seq.sampling, n_before))
                advanced.append(seq)
        ended_ns = time.time_ns()
        self._account(sequences, [len(row.token_ids) for row in rows], len(prompts), watch)
        for seq in advanced:
            seq.last_token_ns = ended_ns
            if seq.attempt_id in self._prompts:
                self._finish_prompt(seq, ended_ns)
            else:
                self._finish_token(seq, ended_ns)
        return True

    def _account(
        self, sequences: list[Sequence], weights: list[int], n_prompts: int, watch: Stopwatch
    ) -> None:
        wall_ns, cpu_ns = watch.read()
        parts = zip(shares(wall_ns, weights), shares(cpu_ns, weights), strict=True)
        for i, (seq, (wall, cpu)) in enumerate(zip(sequences, parts, strict=True)):
            phase = Phase.PREFILL if i < n_prompts else Phase.DECODE
            seq.spent.add(phase, wall, cpu)
            self.spent.add(phase, wall, cpu)

    def _admit(self, seq: Sequence) -> bool:
        if seq.pages:
            return True
        known = self._prefix.match(seq.prompt, seq.hashes)
        fresh = self._prefix.allocate(self._n_pages(seq) - len(known))
        if fresh is None:
            self._ledger.release(known)
            return False
        seq.pages = known + fresh
        seq.n_computed = seq.n_reused = len(known) * BLOCK_TOKENS
        return True

    def _finish_prompt(self, seq: Sequence, ended_ns: int) -> None:
        del self._prompts[seq.attempt_id]
        assert seq.prefill_started_ns is not None, "a step has just been made"
        seq.prefill_ended_ns = ended_ns
        self._prefix.insert(seq.prompt, seq.hashes, seq.pages)
        self._spans.queue(seq, seq.prefill_started_ns)
        self._spans.prefill(seq, ended_ns)
        token_id = seq.generated[-1]
        reason = self._finish_reason(seq)
        if self._role is Role.UNIFIED:
            self._outbox.append(
                Tokens(seq.attempt_id, self._worker_id, (token_id,), reason, seq.n_reused)
            )
            if reason is None:
                self._decoding[seq.attempt_id] = seq
            else:
                self._ledger.release(seq.pages)
            return
        export = None
        if reason is None:
            export = self._link.export(self._worker_id, seq.pages, seq.n_computed, self._lease_s)
            self._leases[seq.attempt_id] = export.lease_id
        else:
            self._ledger.release(seq.pages)
        self._outbox.append(
            PrefillDone(seq.attempt_id, self._worker_id, token_id, reason, seq.n_reused, export)
        )

    def _finish_token(self, seq: Sequence, ended_ns: int) -> None:
        reason = self._finish_reason(seq)
        self._outbox.append(Tokens(seq.attempt_id, self._worker_id, (seq.generated[-1],), reason))
        if reason is None:
            return
        del self._decoding[seq.attempt_id]
        self._spans.decode(seq, ended_ns)
        if self._role is Role.UNIFIED:  # the answer is the beginning of the next turn's prompt
            known = seq.known_tokens()
            self._prefix.insert(known, self._hashes(known, seq.cache_scope), seq.pages)
        self._ledger.release(seq.pages)

    def _end_transfer(self, seq: Sequence) -> None:
        transfer = seq.transfer
        assert transfer is not None, "only handoffs arrive"
        now_ns = time.time_ns()
        self._let_go(transfer.export)
        if transfer.state is TransferState.DONE:
            seq.n_computed = transfer.export.n_tokens
            seq.kv_ready_ns = now_ns
            self._spans.kv_transfer(seq, now_ns)
            self._decoding[seq.attempt_id] = seq
            return
        self._spans.kv_transfer(seq, now_ns, f"kv_transfer_{transfer.state}")
        self._ledger.release(seq.pages)
        error_type = f"kv_transfer_{transfer.state}"
        self._outbox.append(Failed(seq.attempt_id, self._worker_id, transfer.reason, error_type))

    def _drop(self, seq: Sequence, error: str) -> None:
        self._spans.cut_short(seq, time.time_ns(), error)
        self._ledger.release(seq.pages)
        if seq.transfer is not None and not seq.transfer.state.is_final:
            self._let_go(seq.transfer.export)

    def _let_go(self, export: KvExport) -> None:
        self._outbox.append(Release(export.lease_id, export.worker_id))

    def _refusal(self, seq: Sequence) -> str | None:
        if any(seq.attempt_id == other.attempt_id for other in self.running):
            return f"attempt {seq.attempt_id} is on {self._worker_id} already."
        return refusal(seq, self._role, self._model.config, self._ledger.n_pages)

    def _n_pages(self, seq: Sequence) -> int:
        return pages_needed(seq, self._role)

    def _hashes(self, token_ids: tuple[int, ...], cache_scope: str) -> tuple[str, ...]:
        return block_hashes(token_ids, self._model.model_hash, self._model.dtype, cache_scope)

    def _finish_reason(self, seq: Sequence) -> str | None:
        return finish_reason(
            seq.generated[-1], seq.sampling, len(seq.generated), self._model.config.eos_token_ids
        )
