"""What a caller says about its request in headers: who, which attempt, since when.

Knows nothing of bodies or routes.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from serving_probe.attempt import Attributes
from serving_probe.contract import Gen, Root
from serving_probe.stack.errors import RequestError

_MAX_LENGTH: Final = 256
_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Caller:
    """The contract's request-level facts; None where the caller didn't say."""

    request_id: str
    attempt: int = 1
    tenant_id: str = "default"
    slo_class: str | None = None
    intended_start_unix_ns: int | None = None
    conversation_id: str | None = None
    traceparent: str | None = None

    def attributes(self) -> Attributes:
        """These facts as attributes of the root span."""
        attrs: Attributes = {
            Root.REQUEST_ID: self.request_id,
            Root.ATTEMPT: self.attempt,
            Root.TENANT_ID: self.tenant_id,
        }
        if self.slo_class is not None:
            attrs[Root.SLO_CLASS] = self.slo_class
        if self.intended_start_unix_ns is not None:
            attrs[Root.INTENDED_START] = self.intended_start_unix_ns
        if self.conversation_id is not None:
            attrs[Gen.CONVERSATION_ID] = self.conversation_id
        return attrs


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> tuple[Caller, RequestError | None]:
    """The caller, and what is wrong with its headers: a bad one is refused, yet still measured."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    faults: list[str] = []

    def text(name: str) -> str | None:
        value = headers.get(name, "").strip()
        if len(value) > _MAX_LENGTH:
            faults.append(f"{name} must have at most {_MAX_LENGTH} characters, not {len(value)}.")
            return None
        return value or None

    def number(name: str, least: int) -> int | None:
        value = text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and least <= int(value) <= _MAX_INT64):
            faults.append(f"{name} must be a whole number from {least}, not {value[:40]!r}.")
            return None
        return int(value)

    request_id = text("x-request-id") or text("idempotency-key") or uuid.uuid4().hex
    # OpenAI's clients count their own retries from 0 in a header.
    retries = number("x-stainless-retry-count", 0) or 0
    caller = Caller(
        request_id=request_id,
        attempt=number("x-tokenmill-attempt", 1) or retries + 1,
        tenant_id=text("x-tenant-id") or "default",
        slo_class=text("x-slo-class"),
        intended_start_unix_ns=number("x-intended-start-unix-nano", 1),
        conversation_id=text("x-conversation-id"),
        traceparent=headers.get("traceparent"),
    )
    return caller, RequestError(faults[0], code="invalid_header") if faults else None
