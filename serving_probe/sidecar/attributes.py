"""The root span's attributes, from a request's headers, its body and its answer.

Everything that may name a person or quote a prompt stays out: only ids, counts and short words.
"""

import json
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from serving_probe.attempt import Attributes
from serving_probe.contract import Gen, Root
from serving_probe.sidecar import core
from serving_probe.sidecar.answer import Answer

MAX_ID_CHARS: Final = 256
CHAT: Final = "chat"
TEXT: Final = "text_completion"
_INT64_MAX: Final = 2**63 - 1


def operation_of(method: str, path: str) -> str | None:
    """The GenAI operation a request asks for; None when it is not one that is measured."""
    if method != "POST":
        return None
    path = path.rstrip("/")
    if path.endswith("/chat/completions"):
        return CHAT
    return TEXT if path.endswith("/completions") else None


def read_json(body: bytes) -> Mapping[str, object]:
    """A request body's members; empty when it is not a JSON object (the upstream will say so)."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def request_id_of(headers: Mapping[str, str]) -> str:
    """The caller's id of the request, kept over its retries; a new one when it sent none."""
    named = headers.get(core.REQUEST_ID) or headers.get(core.IDEMPOTENCY_KEY)
    return named[:MAX_ID_CHARS] if named else uuid4().hex


def header_attributes(headers: Mapping[str, str], salt: bytes) -> Attributes:
    """What the headers say of who asked, and when they meant to."""
    attrs: Attributes = {Root.ATTEMPT: _int(headers.get(core.ATTEMPT)) or 1}
    if tenant := core.tenant_of(headers, salt):
        attrs[Root.TENANT_ID] = tenant[:MAX_ID_CHARS]
    if slo_class := headers.get(core.SLO_CLASS):
        attrs[Root.SLO_CLASS] = slo_class[:MAX_ID_CHARS]
    if conversation := headers.get(core.CONVERSATION_ID):
        attrs[Gen.CONVERSATION_ID] = conversation[:MAX_ID_CHARS]
    intended = _int(headers.get(core.INTENDED_START))
    if intended is not None:
        attrs[Root.INTENDED_START] = intended
    return attrs


def request_attributes(request: Mapping[str, object]) -> Attributes:
    """What the body says of the answer it wants."""
    attrs: Attributes = {Gen.STREAM: request.get("stream") is True}
    if model := request.get("model"):
        attrs[Gen.REQUEST_MODEL] = str(model)[:MAX_ID_CHARS]
    for name in ("max_completion_tokens", "max_tokens"):
        limit = request.get(name)
        if isinstance(limit, int) and 0 <= limit <= _INT64_MAX:
            attrs[Gen.MAX_TOKENS] = limit
            break
    n = request.get("n")
    if isinstance(n, int) and not isinstance(n, bool) and 1 < n <= _INT64_MAX:
        attrs[Gen.CHOICE_COUNT] = n
    return attrs


def answer_attributes(answer: Answer) -> Attributes:
    """What the answer said; an attribute is absent where the server said nothing."""
    attrs: Attributes = {}
    if answer.response_id:
        attrs[Gen.RESPONSE_ID] = answer.response_id[:MAX_ID_CHARS]
    if answer.model:
        attrs[Gen.RESPONSE_MODEL] = answer.model[:MAX_ID_CHARS]
    if answer.finish_reasons:
        attrs[Gen.FINISH_REASONS] = [reason for _, reason in sorted(answer.finish_reasons.items())]
    if answer.usage is not None:
        counts = {
            Gen.INPUT_TOKENS: answer.usage.input_tokens,
            Gen.OUTPUT_TOKENS: answer.usage.output_tokens,
            Gen.CACHE_READ_TOKENS: answer.usage.cached_tokens,
            Gen.REASONING_TOKENS: answer.usage.reasoning_tokens,
        }
        attrs.update({name: count for name, count in counts.items() if count is not None})
    return attrs


def _int(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 19:
        return None
    value = int(text)
    return value if 0 < value <= _INT64_MAX else None
