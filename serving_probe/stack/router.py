"""Takes attempts through the workers: prefill, handoff, decode, and every way that can end.

One event loop owns all state. Handlers `submit` a `Flight` and read its events; workers are heard
over one ROUTER socket. It knows nothing of HTTP, text or spans, and retries nothing: a caller
that retries makes a new attempt, which is then measured as one.
"""

import asyncio
import contextlib
import sys
import time
from typing import Final

import msgspec
import zmq
import zmq.asyncio

from serving_probe.contract import Outcome, Role
from serving_probe.stack.core import (
    Abort,
    Decode,
    Failed,
    Hello,
    KvRemoved,
    KvStored,
    Prefill,
    PrefillDone,
    Release,
    Status,
    Tokens,
    ToWorker,
    decode_to_router,
    encode,
)
from serving_probe.stack.errors import RequestError
from serving_probe.stack.flight import Flight, LostDecode, Phase, Progress
from serving_probe.stack.members import Member, Members
from serving_probe.stack.placement import Placement, RoutingConfig

_WATCH_EVERY_S: Final = 0.5


class Router:
    """The attempts in flight, the live workers, and the socket between them."""

    def __init__(self, config: RoutingConfig, roles: frozenset[Role], endpoint: str) -> None:
        self._config = config
        self._endpoint = endpoint
        self._flights: dict[str, Flight] = {}
        self.members = Members(roles)
        entry_role = Role.UNIFIED if Role.UNIFIED in roles else Role.PREFILL
        self._placement = Placement(config, self.members, entry_role)
        self._parked: dict[str, Member] = {}  # silent, perhaps only stopped
        self._tasks: list[asyncio.Task[None]] = []

    # Life

    def start(self) -> None:
        """Bind the socket and listen; needs a running event loop."""
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self._endpoint)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]

    async def close(self) -> None:
        """Stop listening; flights still in the air are interrupted."""
        self.interrupt_all()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._socket.close()
        self._context.term()

    def interrupt_all(self) -> None:
        """End every attempt: the stack is going down."""
        for flight in list(self._flights.values()):
            self._fail(flight, "shutting_down", "The stack is shutting down.", 503)

    # What handlers call

    @property
    def n_waiting(self) -> int:
        """Attempts that wait for a worker to start on them."""
        return sum(flight.is_waiting for flight in self._flights.values())

    def submit(self, flight: Flight) -> None:
        """Admit an attempt and send it off; raises `RequestError` (429 or 503) instead."""
        missing = self.members.missing_roles()
        if missing:
            raise RequestError(
                f"No {' or '.join(missing)} worker is alive just now; try again in a second.",
                status=503,
                code="unavailable",
            )
        waiting = self.n_waiting
        if waiting >= self._config.max_queue:
            raise RequestError(
                f"{waiting} requests are waiting already and the queue holds "
                f"{self._config.max_queue}; try again later.",
                status=429,
                code="queue_full",
            )
        self._flights[flight.attempt_id] = flight
        self._send_prefill(flight)

    def abort(self, flight: Flight) -> None:
        """Stop an attempt and tell its workers; nothing when it has ended already."""
        if self._end(flight):
            for worker_id in {flight.prefill_worker, flight.decode_worker}:
                self._send(worker_id, Abort(flight.attempt_id))

    def worker_died(self, worker_id: str) -> None:
        """End every attempt that needed this worker; silent when it isn't known."""
        self._parked.pop(worker_id, None)
        member = self.members.drop(worker_id)
        self._placement.index.forget(worker_id)
        if member is None:
            return
        for attempt_id in member.flights:
            flight = self._flights.get(attempt_id)
            if flight is not None and not flight.is_waiting:
                flight.lost = LostDecode(member.hello, flight.sent_unix_ns)
        self._fail_all_on(member, f"Worker {worker_id} died while it served this request.")

    def _silenced(self, member: Member) -> None:
        """The worker has hung, or is stopped: should it wake, it may come back as it is."""
        sys.stderr.write(f"router: worker {member.worker_id} has gone silent\n")
        self._fail_all_on(member, f"Worker {member.worker_id} stopped answering.")
        self.members.drop(member.worker_id)
        self._placement.index.forget(member.worker_id)
        self._parked[member.worker_id] = member

    def _fail_all_on(self, member: Member, message: str) -> None:
        held = [
            flight.attempt_id
            for flight in self._flights.values()
            if flight.phase is Phase.HELD and flight.prefill_worker == member.worker_id
        ]
        for flight in [self._flights[i] for i in (*member.flights, *held) if i in self._flights]:
            lease = flight.export
            self._fail(flight, "worker_died", message)
            if lease is not None:
                self._send(lease.worker_id, Release(lease.lease_id, lease.worker_id))

    # What workers say

    async def _listen(self) -> None:
        while True:
            address, *_, frame = await self._socket.recv_multipart()
            try:
                message = decode_to_router(frame)
            except msgspec.DecodeError as error:
                sys.stderr.write(f"router: a message could not be read and was dropped: {error}\n")
                continue
            if isinstance(message, Hello):
                self._on_hello(address, message)
                continue
            if isinstance(message, Release):
                self._on_release(message)
                continue
            member = self.members.get(message.worker_id) or self._wake(message.worker_id)
            if member is not None and member.address == address:
                member.heard_s = time.monotonic()
                self._on_message(member, message)

    def _wake(self, worker_id: str) -> Member | None:
        """A worker that had gone silent speaks again: take it back."""
        member = self._parked.pop(worker_id, None)
        if member is not None:
            self.members.join(member)
        return member

    def _on_message(
        self,
        member: Member,
        message: Status | PrefillDone | Tokens | Failed | KvStored | KvRemoved,
    ) -> None:
        match message:
            case Status():
                pass
            case KvStored():
                self._placement.index.stored(member.worker_id, message.block_hashes)
            case KvRemoved():
                self._placement.index.removed(member.worker_id, message.block_hashes)
            case PrefillDone() | Tokens() | Failed():
                flight = self._flights.get(message.attempt_id)
                if flight is None:
                    self._drop_late(message)
                elif isinstance(message, PrefillDone):
                    self._on_prefill_done(member, flight, message)
                elif isinstance(message, Tokens):
                    self._on_tokens(member, flight, message)
                else:
                    self._on_failed(flight, message)

    def _on_hello(self, address: bytes, hello: Hello) -> None:
        self.worker_died(hello.worker_id)  # an incarnation before this one, if we still had it
        self.members.join(Member(hello, address, time.monotonic()))
        for flight in list(self._flights.values()):
            if flight.phase is Phase.HELD:
                self._send_decode(flight)

    def _on_release(self, message: Release) -> None:
        self._send(message.worker_id, message)
        for flight in self._flights.values():
            if flight.export is not None and flight.export.lease_id == message.lease_id:
                flight.export = None

    def _on_prefill_done(self, member: Member, flight: Flight, done: PrefillDone) -> None:
        self._leave_prefill(flight)
        member.prefilled(
            len(flight.token_ids) - done.reused_tokens, flight.dispatched_s, time.monotonic()
        )
        flight.reused_tokens = done.reused_tokens
        flight.first_token = done.first_token
        flight.export = done.export
        flight.offered_s = time.monotonic()
        if done.finish_reason is None and done.export is None:
            self._fail(flight, "kv_transfer_failed", "The prefill worker offered no KV pages.")
            return
        flight.events.put_nowait(Progress((done.first_token,), done.finish_reason))
        if done.finish_reason is not None:
            self._end(flight)
        else:
            self._send_decode(flight)

    def _on_tokens(self, member: Member, flight: Flight, tokens: Tokens) -> None:
        flight.is_waiting = False
        if tokens.reused_tokens is not None:
            computed = len(flight.token_ids) - tokens.reused_tokens
            flight.reused_tokens = tokens.reused_tokens
            member.prefilled(computed, flight.dispatched_s, time.monotonic())
            member.queued_tokens -= flight.queued_tokens
            flight.queued_tokens = 0
        flight.events.put_nowait(Progress(tokens.token_ids, tokens.finish_reason))
        if tokens.finish_reason is not None:
            self._end(flight)

    def _on_failed(self, flight: Flight, failed: Failed) -> None:
        self._fail(flight, failed.error_type, failed.reason)

    def _drop_late(self, message: PrefillDone | Tokens | Failed) -> None:
        """The attempt has ended here meanwhile: let its lease go, so that pages come free."""
        if isinstance(message, PrefillDone) and message.export is not None:
            lease = message.export
            self._send(lease.worker_id, Release(lease.lease_id, lease.worker_id))

    # What workers are told

    def _send_prefill(self, flight: Flight) -> None:
        member, cached_tokens = self._placement.prefill(flight)
        flight.prefill_worker = member.worker_id
        flight.queued_tokens = len(flight.token_ids) - cached_tokens
        flight.dispatched_s = time.monotonic()
        flight.sent_unix_ns = time.time_ns()
        member.flights.add(flight.attempt_id)
        member.queued_tokens += flight.queued_tokens
        self._send(
            member.worker_id,
            Prefill(
                attempt_id=flight.attempt_id,
                traceparent=flight.traceparent,
                token_ids=flight.token_ids,
                cache_scope=flight.cache_scope,
                sampling=flight.sampling,
                dispatched_unix_ns=flight.sent_unix_ns,
            ),
        )

    def _send_decode(self, flight: Flight) -> None:
        member = self._placement.decode()
        if member is None:
            flight.phase = Phase.HELD
            return
        assert flight.export is not None, "a prefilled flight has a lease"
        assert flight.first_token is not None, "a prefilled flight has token 1"
        flight.phase = Phase.DECODE
        flight.decode_worker = member.worker_id
        flight.sent_unix_ns = time.time_ns()
        held_s = time.monotonic() - flight.offered_s
        member.flights.add(flight.attempt_id)
        self._send(
            member.worker_id,
            Decode(
                attempt_id=flight.attempt_id,
                traceparent=flight.traceparent,
                token_ids=flight.token_ids,
                first_token=flight.first_token,
                sampling=flight.sampling,
                export=msgspec.structs.replace(
                    flight.export, ttl_s=max(0.0, flight.export.ttl_s - held_s)
                ),
                dispatched_unix_ns=flight.sent_unix_ns,
            ),
        )

    def _send(self, worker_id: str | None, message: ToWorker) -> None:
        member = self.members.get(worker_id)
        if member is not None:
            # Without a high-water mark the frames are queued before this returns.
            self._socket.send_multipart([member.address, encode(message)])

    # Ends

    def _fail(self, flight: Flight, error_type: str, message: str, status: int = 502) -> None:
        """Interrupt the handler and stop whatever the other worker still does for it."""
        flight.interrupt(Outcome.FAILED, error_type, message, status)
        self.abort(flight)

    def _end(self, flight: Flight) -> bool:
        """Take the flight off every book; False when it was off already."""
        if self._flights.pop(flight.attempt_id, None) is None:
            return False
        self._leave_prefill(flight)
        flight.phase = Phase.ENDED
        decode = self.members.get(flight.decode_worker)
        if decode is not None:
            decode.flights.discard(flight.attempt_id)
        return True

    def _leave_prefill(self, flight: Flight) -> None:
        member = self.members.get(flight.prefill_worker)
        if member is not None and flight.attempt_id in member.flights:
            member.flights.discard(flight.attempt_id)
            member.queued_tokens -= flight.queued_tokens
        flight.queued_tokens = 0

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            for member in self.members.silent(self._config.silence_s, time.monotonic()):
                self._silenced(member)
