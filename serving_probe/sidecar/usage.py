"""Token usage of OpenAI-compatible answers: how to ask for it, how to read it, how to hide it.

A stream carries usage only when the caller asked; the probe asks in the caller's place and takes
the extra out again. Knows nothing of sockets or spans.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NULL_USAGE: Final = re.compile(rb',\s*"usage"\s*:\s*null')


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the server gave them; None where it said nothing."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


def read_usage(value: object) -> Usage | None:
    """The counts of an answer's `usage` member; None when there is none."""
    if not isinstance(value, Mapping):
        return None
    cached = _count(_member(value, "prompt_tokens_details"), "cached_tokens")
    if cached is None:  # DeepSeek's word for it
        cached = _count(value, "prompt_cache_hit_tokens")
    return Usage(
        input_tokens=_count(value, "prompt_tokens"),
        output_tokens=_count(value, "completion_tokens"),
        cached_tokens=cached,
        reasoning_tokens=_count(_member(value, "completion_tokens_details"), "reasoning_tokens"),
    )


def ask_for_usage(body: bytes, request: Mapping[str, object]) -> bytes | None:
    """`body` with usage asked for; None when the caller asked already.

    Without stream options of the caller's own the member is put in front and every other byte stays
    as it came.
    """
    if "stream_options" not in request:
        head, brace, rest = body.partition(b"{")
        return head + brace + b'"stream_options":{"include_usage":true},' + rest
    options = request["stream_options"]
    if isinstance(options, Mapping):
        if options.get("include_usage") is True:
            return None
    elif options is not None:
        return None  # not an object: the server's business to refuse
    asked = {**(options or {}), "include_usage": True}
    return json.dumps({**request, "stream_options": asked}, ensure_ascii=False).encode()


def without_null_usage(raw: bytes) -> bytes:
    """An event as it would be had usage not been asked for: no `"usage": null` member.

    Safe as text: inside a JSON string the quotes would be escaped. More than one match is left
    alone, for then the member may be someone else's.
    """
    matches = list(_NULL_USAGE.finditer(raw))
    if len(matches) != 1:
        return raw
    return raw[: matches[0].start()] + raw[matches[0].end() :]


def _member(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    member = value.get(name)
    return member if isinstance(member, Mapping) else {}


def _count(value: Mapping[str, object], name: str) -> int | None:
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) else None
