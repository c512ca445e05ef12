"""The OpenAI API's shapes, as far as the stack serves them: requests read, answers written.

What would change the meaning of an answer and isn't served is refused; unknown fields are ignored.
Knows neither tokens nor workers.
"""

from typing import Annotated, Any, Final, Literal, Self, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving_probe.stack.errors import RequestError

_SERVED_ONLY_AS: Final[dict[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


class StreamOptions(BaseModel):
    """Whether the last message of a stream carries the usage."""

    model_config = ConfigDict(frozen=True)

    include_usage: bool = False


class GenerationRequest(BaseModel):
    """What both endpoints take."""

    model_config = ConfigDict(frozen=True)

    model: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    stop: str | Annotated[tuple[str, ...], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_served(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, served in _SERVED_ONLY_AS.items():
                value = data.get(name)
                if value is not None and value not in served:
                    raise RequestError(
                        f"{name}={value!r} isn't served here; leave it out.",
                        code="unsupported_value",
                        param=name,
                    )
        return data

    @model_validator(mode="after")
    def _usage_only_of_streams(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Strings that end the output; empty ones are none."""
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        return tuple(text for text in stop if text)

    @property
    def wanted_tokens(self) -> int | None:
        """The caller's limit on output tokens; None leaves it to the server."""
        return self.max_tokens

    @property
    def has_usage_message(self) -> bool:
        """The stream is to end with a message that carries the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class TextPart(BaseModel):
    """A part of a message; only text is served."""

    model_config = ConfigDict(frozen=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[TextPart, ...]

    def turn(self) -> dict[str, str]:
        """The turn as the chat template wants it."""
        text = self.content
        if not isinstance(text, str):
            text = "".join([part.text for part in text])
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(GenerationRequest):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[tuple[Message, ...], Field(min_length=1)]
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None

    @property
    def wanted_tokens(self) -> int | None:
        """`max_completion_tokens`, or its older name."""
        return self.max_completion_tokens or self.max_tokens


TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class CompletionRequest(GenerationRequest):
    """Body of `POST /v1/completions`; a prompt is text or token ids."""

    prompt: str | Annotated[tuple[TokenId, ...], Field(min_length=1)]


Request = TypeVar("Request", bound=GenerationRequest)


def read_request(body: bytes, kind: type[Request]) -> Request:
    """The request in `body`; raises `RequestError` that says in one sentence what is wrong."""
    try:
        data = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise RequestError(f"The body must be JSON: {error}.") from error
    except RecursionError as error:
        raise RequestError("The body is nested too deeply to be a request.") from error
    if not isinstance(data, dict):
        raise RequestError("The body must be a JSON object.")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        raise RequestError(f"{where}: {text}." if where else f"{text}.", param=where) from error


class PromptDetails(msgspec.Struct, frozen=True):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """The counts in the API's shape."""
    return Usage(
        prompt_tokens,
        completion_tokens,
        prompt_tokens + completion_tokens,
        PromptDetails(cached_tokens),
    )


class Form(msgspec.Struct, frozen=True):
    """Writes one answer's messages; `is_chat` chooses between the two endpoints' shapes."""

    response_id: str
    created: int
    model: str
    is_chat: bool
    has_usage_message: bool = False

    def opening(self) -> bytes | None:
        """The role-only message that opens a chat stream."""
        if not self.is_chat:
            return None
        return self._message({"role": "assistant", "content": ""}, None)

    def content(self, text: str) -> bytes:
        """A message with text."""
        return self._message({"content": text}, None) if self.is_chat else self._text(text, None)

    def closing(self, finish_reason: str) -> bytes:
        """The message that says why the output ended; it has no text."""
        return self._message({}, finish_reason) if self.is_chat else self._text("", finish_reason)

    def usage(self, usage: Usage) -> bytes:
        """The last message of a stream that was asked for its usage."""
        return _event({**self._head(is_stream=True), "choices": [], "usage": usage})

    def whole(self, text: str, finish_reason: str, usage: Usage) -> bytes:
        """The answer that isn't streamed."""
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        if self.is_chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        return msgspec.json.encode(
            {**self._head(is_stream=False), "choices": [choice], "usage": usage}
        )

    def _head(self, *, is_stream: bool) -> dict[str, object]:
        kind = "text_completion"
        if self.is_chat:
            kind = "chat.completion.chunk" if is_stream else "chat.completion"
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }

    def _message(self, delta: dict[str, str], finish_reason: str | None) -> bytes:
        return self._chunk({"delta": delta}, finish_reason)

    def _text(self, text: str, finish_reason: str | None) -> bytes:
        return self._chunk({"text": text}, finish_reason)

    def _chunk(self, content: dict[str, object], finish_reason: str | None) -> bytes:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        message = {**self._head(is_stream=True), "choices": [choice]}
        if self.has_usage_message:
            message["usage"] = None
        return _event(message)


DONE: Final = b"data: [DONE]\n\n"


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def error_event(message: str, kind: str, code: str | None) -> bytes:
    """The error object as a message of a stream that has begun."""
    return b"data: " + error_body(message, kind, code) + b"\n\n"


def _event(message: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(message) + b"\n\n"
