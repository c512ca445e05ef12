"""What one streamed message, or one whole answer, of an OpenAI-compatible server says.

A *chunk* is a message with content: text, reasoning, or a tool call's name or arguments.
Role-only and empty deltas, empty lists, keep-alives and the usage message are none. Text itself is
looked at for emptiness only and never kept.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from serving_probe.sidecar.usage import Usage, read_usage

DONE: Final = b"[DONE]"
_SAFE_ERROR: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TEXT_MEMBERS: Final = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(frozen=True, slots=True)
class Content:
    """A chunk: the choice it belongs to and its tokens (None: the message doesn't say)."""

    choice: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Message:
    """One streamed message, reduced to what is measured."""

    contents: tuple[Content, ...] = ()
    finish_reasons: Mapping[int, str] = field(default_factory=dict)
    usage: Usage | None = None
    n_choices: int = 0
    response_id: str | None = None
    model: str | None = None
    error: str | None = None
    is_done: bool = False

    @property
    def is_usage_only(self) -> bool:
        """Whether this is the extra message that `include_usage` brings at the end."""
        return self.usage is not None and self.n_choices == 0


def read_message(data: bytes) -> Message | None:
    """What an event's data says; None when it is not a completion message at all."""
    if data.strip() == DONE:
        return Message(is_done=True)
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return read_value(value)


def read_value(value: object) -> Message | None:
    """What a decoded message or a whole (not streamed) answer says."""
    if not isinstance(value, Mapping):
        return None
    choices = [c for c in _list(value.get("choices")) if isinstance(c, Mapping)]
    finish_reasons = {}
    contents = []
    for choice in choices:
        index = _int(choice.get("index")) or 0
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            finish_reasons[index] = reason
        if _has_content(choice):
            contents.append(Content(index, _n_tokens(choice)))
    return Message(
        contents=tuple(contents),
        finish_reasons=finish_reasons,
        usage=read_usage(value.get("usage")),
        n_choices=len(choices),
        response_id=_text(value.get("id")),
        model=_text(value.get("model")),
        error=_error(value.get("error")),
    )


def _has_content(choice: Mapping[str, object]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        delta = choice.get("message")
    if not isinstance(delta, Mapping):
        return False
    if any(delta.get(name) for name in _TEXT_MEMBERS):
        return True
    functions = [call.get("function") for call in _list(delta.get("tool_calls")) if call]
    functions.append(delta.get("function_call"))
    return any(
        isinstance(function, Mapping) and (function.get("name") or function.get("arguments"))
        for function in functions
    )


def _n_tokens(choice: Mapping[str, object]) -> int | None:
    """Tokens of a chunk where the server lists them: as `token_ids` or with log probabilities."""
    ids = choice.get("token_ids")
    if isinstance(ids, list):
        return len(ids)
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, Mapping):
        for name in ("content", "tokens"):
            listed = logprobs.get(name)
            if isinstance(listed, list) and listed:
                return len(listed)
    return None


def _error(value: object) -> str | None:
    """A short name of an error, never its text, which may quote the prompt."""
    if not value:
        return None
    if isinstance(value, Mapping):
        for name in ("code", "type"):
            word = value.get(name)
            if isinstance(word, str) and _SAFE_ERROR.fullmatch(word):
                return word
    return "stream_error"


def _list(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
