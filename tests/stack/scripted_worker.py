"""A worker process without a model: answers the router's messages by what the prompt spells.

`slow` waits, `fail` refuses, `mute` never answers; otherwise the output is b, c, d, … after an
`a` as token 1. Every message it gets is printed, so that a test can read what it was told.
"""

import sys
import time
import uuid
from collections import deque

import zmq

from serving_probe.contract import Role
from serving_probe.stack.core import (
    Abort,
    Decode,
    Failed,
    Hello,
    KvExport,
    Prefill,
    PrefillDone,
    Release,
    Status,
    Tokens,
    ToRouter,
    decode_to_worker,
    encode,
)

STEP_S = 0.02


def main(endpoint: str, role: Role, worker_id: str) -> None:
    """Serve until killed."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)

    def send(message: ToRouter) -> None:
        socket.send(encode(message))

    send(Hello(worker_id, role, "scripted", role.value, uuid.uuid4().hex, 8, 64, "none"))
    running: deque[tuple[Prefill | Decode, int]] = deque()
    said_s = 0.0
    while True:
        while socket.poll(0 if running else 50):
            message = decode_to_worker(socket.recv())
            print(type(message).__name__, getattr(message, "attempt_id", ""), flush=True)
            if isinstance(message, Abort):
                gone = message.attempt_id
                running = deque(item for item in running if item[0].attempt_id != gone)
            elif isinstance(message, Prefill | Decode) and "mute" not in spelled(message):
                running.append((message, 1))
        if time.monotonic() - said_s > 0.25:
            said_s = time.monotonic()
            send(Status(worker_id, 0, len(running), 64))
        time.sleep(STEP_S if running else 0)
        for _ in range(len(running)):
            job, done = running.popleft()
            if isinstance(job, Prefill):
                prefill(job, worker_id, send)
            elif decode(job, done, worker_id, send):
                running.append((job, done + 1))


def spelled(job: Prefill | Decode) -> str:
    """The prompt's text: token ids are bytes."""
    return bytes(i for i in job.token_ids if i < 256).decode(errors="replace")


def prefill(job: Prefill, worker_id: str, send) -> None:
    text = spelled(job)
    if "fail" in text:
        send(Failed(job.attempt_id, worker_id, "The script says no.", "prompt_too_long"))
        return
    if "slow" in text:
        time.sleep(0.5)
    is_last = job.sampling.max_tokens == 1
    lease = f"lease-{job.attempt_id}"
    export = KvExport(lease, worker_id, "none", (0,), len(job.token_ids), 1, "f", "l", 30.0)
    reused = 16 if len(job.token_ids) > 32 else 0
    finish = "length" if is_last else None
    export_or_none = None if is_last else export
    send(PrefillDone(job.attempt_id, worker_id, ord("a"), finish, reused, export_or_none))


def decode(job: Decode, done: int, worker_id: str, send) -> bool:
    """One step of one sequence; False when it was the last."""
    if done == 1:
        send(Release(job.export.lease_id, job.export.worker_id))
    is_last = done + 1 >= job.sampling.max_tokens
    token = ord("a") + done % 26
    send(Tokens(job.attempt_id, worker_id, (token,), "length" if is_last else None))
    return not is_last


if __name__ == "__main__":
    main(sys.argv[1], Role(sys.argv[2]), sys.argv[3])
