"""Turns an output's token ids into text to send, holding back what isn't ready.

Held back are bytes of an unfinished character and text that may be the start of a stop string;
their tokens are counted with the chunk that carries them at last.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Detokenizer(Protocol):
    """What is needed of a model's detokenizer."""

    def push(self, token_id: int) -> str:
        """The text this token completes."""
        ...

    def flush(self) -> str:
        """What was held back."""
        ...


class Piece(NamedTuple):
    """Text to send now (may be empty), the tokens it carries, and whether a stop string came."""

    text: str
    n_tokens: int
    is_stopped: bool


class TextStream:
    """One output's text; `stop` strings end it and are never part of it."""

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stop = stop
        self._held = ""
        self._held_tokens = 0
        self.n_tokens = 0

    def push(self, token_ids: Sequence[int], *, is_last: bool = False) -> Piece:
        """Take the tokens of one step; with the last ones comes whatever was held back."""
        self.n_tokens += len(token_ids)
        self._held_tokens += len(token_ids)
        self._held += "".join([self._detokenizer.push(token_id) for token_id in token_ids])
        if is_last:
            self._held += self._detokenizer.flush()
        at = self._first_stop()
        if at is not None:
            self._held = self._held[:at]
            return self._take(at, is_stopped=True)
        return self._take(len(self._held) - (0 if is_last else self._possible_stop()))

    def _take(self, length: int, *, is_stopped: bool = False) -> Piece:
        text, self._held = self._held[:length], self._held[length:]
        if not text:
            return Piece("", 0, is_stopped)
        tokens, self._held_tokens = self._held_tokens, 0
        return Piece(text, tokens, is_stopped)

    def _first_stop(self) -> int | None:
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        return min(found, default=None)

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that is the start of a stop string."""
        return max((_overlap(self._held, stop) for stop in self._stop), default=0)


def _overlap(text: str, stop: str) -> int:
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
