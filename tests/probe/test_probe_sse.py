"""The event parser under every split, and what counts as a chunk."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_probe.contract import Outcome
from serving_probe.sidecar.answer import Answer, refusal
from serving_probe.sidecar.chunks import Content, read_message, read_value
from serving_probe.sidecar.sse import MAX_EVENT_BYTES, SseEvent, SseParser
from serving_probe.sidecar.usage import Usage, ask_for_usage, read_usage, without_null_usage

LINES = st.lists(
    st.sampled_from(
        [b"data: x", b"data:y", b"data: \xc3\xa9", b": keep-alive", b"event: e", b"id: 1", b"data"]
    ),
    max_size=4,
)
EVENTS = st.lists(LINES, max_size=6)


def parse(pieces: list[bytes]) -> tuple[list[SseEvent], bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events, parser.flush()


def data_of(lines: list[bytes]) -> bytes | None:
    values = [
        line[4:].removeprefix(b":").removeprefix(b" ") for line in lines if line[:4] == b"data"
    ]
    return b"\n".join(values) if values else None


@given(events=EVENTS, ends=st.sampled_from([b"\n", b"\r\n", b"\r"]), tail=LINES, data=st.data())
def test_any_split_gives_the_same_events_and_bytes(
    events: list[list[bytes]], ends: bytes, tail: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(ends.join(lines) + ends + ends for lines in events if lines)
    whole += ends.join(tail)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    got, rest = parse(pieces)
    assert b"".join(event.raw for event in got) + rest == whole
    if ends == b"\r" and not tail:
        # A lone CR at the very end may be half of a CRLF: the last event waits.
        assert [event.data for event in got] == [data_of(lines) for lines in events if lines][:-1]
    else:
        assert [event.data for event in got] == [data_of(lines) for lines in events if lines]
    assert (got, rest) == parse([whole])
    assert (got, rest) == parse([whole[i : i + 1] for i in range(len(whole))])


def test_a_byte_order_mark_and_an_endless_event_do_no_harm() -> None:
    assert parse([b"\xef\xbb\xbfdata: a\n\n"])[0][0].data == b"a"
    events, rest = parse([b"data: " + b"x" * MAX_EVENT_BYTES, b"\n\ndata: b\n\n"])
    assert events[0].data is None
    assert events[-1].data == b"b"
    assert rest == b""


@pytest.mark.parametrize(
    ("delta", "is_chunk"),
    [
        ({"role": "assistant"}, False),
        ({"role": "assistant", "content": ""}, False),
        ({"content": None}, False),
        ({}, False),
        ({"content": " "}, True),
        ({"reasoning_content": "so"}, True),
        ({"reasoning": "so"}, True),
        ({"refusal": "no"}, True),
        ({"tool_calls": []}, False),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, True),
        ({"tool_calls": [{"index": 0, "id": "call_1", "function": {"arguments": ""}}]}, False),
        ({"function_call": {"name": "f"}}, True),
    ],
)
def test_what_is_a_chunk(delta: dict[str, Any], is_chunk: bool) -> None:
    message = read_value({"choices": [{"index": 0, "delta": delta}]})
    assert message is not None
    assert bool(message.contents) == is_chunk


def test_text_completions_choices_and_token_lists() -> None:
    message = read_value(
        {
            "choices": [
                {"index": 1, "text": "a b", "logprobs": {"tokens": ["a", " b"]}},
                {"index": 0, "text": "c", "token_ids": [7]},
                {"index": 2, "text": ""},
            ]
        }
    )
    assert message is not None
    assert message.contents == (Content(1, 2), Content(0, 1))


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b"3", b'{"choices": 3}', b'{"choices":[4]}']
)
def test_other_messages_are_no_chunks(data: bytes) -> None:
    message = read_message(data)
    assert message is None or not message.contents


def test_running_usage_tells_a_chunks_tokens() -> None:
    answer = Answer()
    sizes = []
    for total, text in [(0, ""), (2, "a b"), (3, "c")]:
        choice = {"index": 0, "delta": {"content": text}}
        message = read_value({"choices": [choice], "usage": {"completion_tokens": total}})
        assert message is not None
        sizes += [content.tokens for content in answer.read(message)]
    assert sizes == [2, 1]


def test_ends() -> None:
    answer = Answer()
    assert answer.ending() == (Outcome.FAILED, "incomplete_answer")
    message = read_value({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    assert message is not None
    answer.read(message)
    assert answer.ending() == (Outcome.COMPLETED, None)
    failure = read_value({"error": {"message": "the prompt 'secret' …", "type": "a b c"}})
    assert failure is not None
    answer.read(failure)
    assert answer.ending() == (Outcome.FAILED, "stream_error")
    assert refusal(429) == (Outcome.REJECTED, "429")
    assert refusal(400) == (Outcome.REJECTED, "400")
    assert refusal(503) == (Outcome.REJECTED, "503")
    assert refusal(504) == (Outcome.TIMED_OUT, "504")
    assert refusal(500) == (Outcome.FAILED, "500")


def test_usage_says_none_for_what_it_does_not_say() -> None:
    assert read_usage(None) is None
    assert read_usage({"prompt_tokens": 3, "prompt_tokens_details": None}) == Usage(input_tokens=3)
    assert read_usage({"prompt_tokens": 3, "prompt_cache_hit_tokens": 2}) == Usage(3, None, 2)
    full = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert read_usage(full) == Usage(9, 4, 0, 1)


@pytest.mark.parametrize(
    ("body", "is_changed"),
    [
        (b'{"stream":true,"x":1e400,"x2":1.0}', True),
        (b' {"stream":true}', True),
        (b'{"stream":true,"stream_options":{"include_usage":true}}', False),
        (b'{"stream":true,"stream_options":{"include_usage":false,"other":1}}', True),
        (b'{"stream":true,"stream_options":null}', True),
        (b'{"stream":true,"stream_options":"bad"}', False),
    ],
)
def test_usage_is_asked_for_once(body: bytes, is_changed: bool) -> None:
    asked = ask_for_usage(body, json.loads(body))
    assert (asked is not None) == is_changed
    if asked is not None:
        options = json.loads(asked)["stream_options"]
        assert options["include_usage"] is True
        if b"stream_options" not in body:
            assert asked.endswith(body.strip()[1:])  # every byte of the caller's own
        if b"other" in body:
            assert options["other"] == 1


def test_only_the_member_that_asking_brought_is_taken_out() -> None:
    assert without_null_usage(b'data: {"a":1,"usage":null}\n\n') == b'data: {"a":1}\n\n'
    assert without_null_usage(b'data: {"a":1, "usage": null}\n\n') == b'data: {"a":1}\n\n'
    for raw in (
        b'data: {"t":",\\"usage\\":null"}\n\n',
        b'{"a":1,"usage":null,"b":{"c":1,"usage":null}}',
    ):
        assert without_null_usage(raw) == raw
