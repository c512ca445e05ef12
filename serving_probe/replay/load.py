"""Open-loop load: every request leaves at its scheduled time, whatever the server does.

A closed loop would slow down with the server and so hide its queue (coordinated omission). How late
the generator itself was is in the summary, so that its own faults can't pass for the server's.
"""

import asyncio
import gc
import json
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

import aiohttp

from serving_probe.errors import ReplayError
from serving_probe.replay.client import Client, Prepared, open_session
from serving_probe.replay.core import Progress, ReplayConfig, ReplaySummary, Shape
from serving_probe.replay.plan import Plan, plan_run
from serving_probe.replay.prompts import Prompts
from serving_probe.replay.record import RecordFile
from serving_probe.replay.tally import Tally

LOOKAHEAD: Final = 64
"""Requests whose text is made before they are due, so that making it can't delay a burst."""

SPARE_S: Final = 0.02
"""Text is made while at least this much time is left before the next send."""

PREFLIGHT_S: Final = 10.0

OnProgress = Callable[[Progress], None]


def run_replay(config: ReplayConfig, on_progress: OnProgress | None = None) -> ReplaySummary:
    """Send the load and wait for the answers; the first SIGINT or SIGTERM ends it early.

    Raises a `ReplayError` with one sentence for a source, server or record file that can't be used.
    """
    return asyncio.run(_until_signal(config, on_progress))


async def _until_signal(config: ReplayConfig, on_progress: OnProgress | None) -> ReplaySummary:
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await replay(config, on_progress, stop)


async def replay(
    config: ReplayConfig,
    on_progress: OnProgress | None = None,
    stop: asyncio.Event | None = None,
) -> ReplaySummary:
    """As `run_replay`, inside a running event loop; `stop` ends it early."""
    plan = plan_run(config)
    with RecordFile(config.out) as file:
        async with open_session() as session:
            model = await _preflight(session, config)
            run = _Run(config, plan, model, session, file, on_progress, stop or asyncio.Event())
            return await run.run()


class _Run:
    """One run's state."""

    def __init__(
        self,
        config: ReplayConfig,
        plan: Plan,
        model: str,
        session: aiohttp.ClientSession,
        file: RecordFile,
        on_progress: OnProgress | None,
        stop: asyncio.Event,
    ) -> None:
        self._config = config
        self._plan = plan
        self._model = model
        self._client = Client(config, model, uuid4().hex[:12])
        self._session = session
        self._file = file
        self._on_progress = on_progress
        self._stop = stop
        self._prompts = Prompts(config.seed)
        self._whims = random.Random(f"{config.seed}/cancels")
        self._ready: deque[Prepared] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._tally = Tally()

    async def run(self) -> ReplaySummary:
        """Send all, wait for all, sum up."""
        while len(self._ready) < LOOKAHEAD and self._prepare():
            pass
        gc.freeze()
        started = time.perf_counter()
        started_unix_ns = time.time_ns()
        await self._send_all(started, started_unix_ns)
        await self._drain()
        if self._failure is not None:
            raise self._failure
        return self._tally.summary(self._model, _since(started), self._plan.notes, self._config.out)

    async def _send_all(self, started: float, started_unix_ns: int) -> None:
        while self._ready and not self._stop.is_set():
            prepared = self._ready.popleft()
            offset_s = prepared.shape.offset_s / self._config.rate_scale
            due = started + offset_s
            while len(self._ready) < LOOKAHEAD and due - time.perf_counter() > SPARE_S:
                if not self._prepare():
                    break
                await asyncio.sleep(0)  # answers are being read meanwhile
            if not self._ready:
                self._prepare()
            if await self._stopped_before(due):
                break
            scheduled_unix_ns = started_unix_ns + round(offset_s * 1e9)
            task = asyncio.create_task(self._attempt(prepared, scheduled_unix_ns, started))
            self._in_flight.add(task)
            task.add_done_callback(self._landed)
            self._tally.n_sent += 1

    async def _stopped_before(self, due: float) -> bool:
        left = due - time.perf_counter()
        if left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), left)
        return self._stop.is_set()

    async def _attempt(self, prepared: Prepared, scheduled_unix_ns: int, started: float) -> None:
        record = await self._client.send(self._session, prepared, scheduled_unix_ns)
        self._file.write(record)
        self._tally.add(record)
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    n_sent=self._tally.n_sent,
                    n_ended=self._tally.n_ended,
                    elapsed_s=_since(started),
                    n_total=self._plan.n_total,
                    total_s=self._config.seconds,
                )
            )

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._stop.set()

    async def _drain(self) -> None:
        """Wait for what is under way; after a stop only so long, then leave."""
        stopping = asyncio.create_task(self._stop.wait())
        try:
            while self._in_flight and not self._stop.is_set():
                await asyncio.wait(
                    [*self._in_flight, stopping], return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=self._config.drain_s)
        for task in self._in_flight:
            task.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight)

    def _prepare(self) -> bool:
        """Make the next request's bytes; whether there was one."""
        shape = next(self._plan.shapes, None)
        if shape is None:
            return False
        body = self._client.body(shape, self._prompts.turns(shape))
        self._ready.append(Prepared(shape, body, self._whim(shape)))
        return True

    def _whim(self, shape: Shape) -> int | None:
        """After how many chunks this client will leave; None: it stays."""
        if self._whims.random() >= self._config.cancel_ratio:
            return None
        return self._whims.randint(1, max(1, shape.output_tokens // 2))


async def _preflight(session: aiohttp.ClientSession, config: ReplayConfig) -> str:
    """The model to ask for; raises `ReplayError` when nothing answers at the URL."""
    key = config.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    try:
        async with asyncio.timeout(PREFLIGHT_S):
            async with session.get(f"{config.url}/v1/models", headers=headers) as response:
                text = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        why = str(error) or f"no answer in {PREFLIGHT_S:g} s"
        raise ReplayError(
            f"no server answers at {config.url} ({why}); start one, or give another with --url."
        ) from error
    if config.model is not None:
        return config.model
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, TypeError, KeyError, IndexError):
        raise ReplayError(
            f"{config.url}/v1/models names no model; say which one with --model."
        ) from None


def _since(started: float) -> float:
    return time.perf_counter() - started
