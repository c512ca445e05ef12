"""Adds up what an answer said: usage, finish reasons, ids, and whether it came to its end.

The same reading serves the sidecar and the replay client, so both call the same things chunks and
the same ends completed. Knows no clock: the caller stamps the contents that `read` returns.
"""

from dataclasses import dataclass, field, replace

from serving_probe.contract import Outcome
from serving_probe.sidecar.chunks import Content, Message
from serving_probe.sidecar.usage import Usage


@dataclass(slots=True)
class Answer:
    """The sum of an answer's messages so far."""

    usage: Usage | None = None
    finish_reasons: dict[int, str] = field(default_factory=dict)
    response_id: str | None = None
    model: str | None = None
    error: str | None = None
    is_done: bool = False

    def read(self, message: Message) -> tuple[Content, ...]:
        """Take a message in; returns its chunks, with tokens where running usage tells them."""
        contents = message.contents
        if message.usage is not None:
            contents = self._counted(message)
            self.usage = message.usage
        self.finish_reasons.update(message.finish_reasons)
        self.response_id = self.response_id or message.response_id
        self.model = self.model or message.model
        self.error = self.error or message.error
        self.is_done = self.is_done or message.is_done
        return contents

    @property
    def has_ended(self) -> bool:
        """Whether the server said that it was through."""
        return self.is_done or bool(self.finish_reasons)

    def ending(self) -> tuple[Outcome, str | None]:
        """Outcome and error type of an answer with status 200 whose bytes have ended."""
        if self.error is not None:
            return Outcome.FAILED, self.error
        if not self.has_ended:
            return Outcome.FAILED, "incomplete_answer"
        return Outcome.COMPLETED, None

    def _counted(self, message: Message) -> tuple[Content, ...]:
        """Some servers send running totals: the difference is the chunk's tokens."""
        total = message.usage.output_tokens if message.usage else None
        if len(message.contents) != 1 or message.n_choices != 1 or total is None:
            return message.contents
        before = self.usage.output_tokens if self.usage else 0
        if before is None or message.contents[0].tokens is not None:
            return message.contents
        return (replace(message.contents[0], tokens=max(0, total - before)),)


def refusal(status: int) -> tuple[Outcome, str]:
    """Outcome and error type of an HTTP status of 400 or more (error type: the status, as OTel)."""
    if status in (408, 504):
        return Outcome.TIMED_OUT, str(status)
    if status == 503 or status < 500:
        return Outcome.REJECTED, str(status)
    return Outcome.FAILED, str(status)
