"""Text of a wanted length, and the same text where a source says that a prefix is shared.

Words are common English ones that byte-pair tokenizers trained on English keep whole, so a word or
a full stop is about one token. Knows nothing of a tokenizer: lengths are near, the server's usage
says what they were.
"""

import random
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Final

from serving_probe.replay import words
from serving_probe.replay.core import Shape
from serving_probe.replay.workload import MAX_OPEN, MESSAGE_TOKENS

_POOL: Final = 4096


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str
    text: str
    n_tokens: int  # as meant, without the template's marks


class Prompts:
    """Makes the turns of each shape; the same seed and shapes give the same text."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sentences = _sentences(seed)
        self._numbers = count()
        self._histories: OrderedDict[int, tuple[Turn, ...]] = OrderedDict()

    def turns(self, shape: Shape) -> tuple[Turn, ...]:
        """The messages to send: one of the user's, or a conversation so far that ends with one."""
        number = next(self._numbers)
        if shape.block_ids:
            return (self._from_blocks(shape),)
        rng = random.Random(f"{self._seed}/request/{number}")
        if shape.conversation is None:
            return (self._turn("user", rng, shape.input_tokens - MESSAGE_TOKENS),)
        history = self._histories.pop(shape.conversation, None) or self._system(shape)
        spent = sum(turn.n_tokens + MESSAGE_TOKENS for turn in history)
        user = self._turn("user", rng, shape.input_tokens - spent - MESSAGE_TOKENS)
        sent = (*history, user)
        # The next turn's history has an answer written here, not the server's: what a run sends
        # must not depend on how the server fares.
        answer = self._turn("assistant", rng, shape.output_tokens)
        self._histories[shape.conversation] = (*sent, answer)
        if len(self._histories) > 2 * MAX_OPEN:
            self._histories.popitem(last=False)
        return sent

    def _system(self, shape: Shape) -> tuple[Turn, ...]:
        if shape.system_prompt is None:
            return ()
        rng = random.Random(f"{self._seed}/system/{shape.system_prompt}")
        return (self._turn("system", rng, shape.system_tokens),)

    def _from_blocks(self, shape: Shape) -> Turn:
        left = shape.input_tokens
        parts = []
        for block_id in shape.block_ids:
            n_tokens = min(left, shape.block_tokens)
            if n_tokens < 1:
                break
            text = _block(self._seed, block_id, shape.block_tokens)
            parts.append(text if n_tokens == shape.block_tokens else _cut(text, n_tokens))
            left -= n_tokens
        return Turn("user", " ".join(parts), shape.input_tokens - left)

    def _turn(self, role: str, rng: random.Random, n_tokens: int) -> Turn:
        n_tokens = max(1, n_tokens)
        return Turn(role, _text(self._sentences, rng, n_tokens), n_tokens)


def count_tokens(text: str) -> int:
    """The length that `text` was made for: words and full stops."""
    return len(text.split()) + text.count(".")


def _text(sentences: tuple[tuple[str, int], ...], rng: random.Random, n_tokens: int) -> str:
    parts = []
    left = n_tokens
    while left > 0:
        sentence, size = sentences[rng.randrange(_POOL)]
        parts.append(sentence if size <= left else _cut(sentence, left))
        left -= size
    return " ".join(parts)


def _cut(text: str, n_tokens: int) -> str:
    """The first `n_tokens` words and full stops."""
    return " ".join(text.replace(".", " .").split()[:n_tokens]).replace(" .", ".")


@lru_cache(maxsize=4)
def _sentences(seed: int) -> tuple[tuple[str, int], ...]:
    rng = random.Random(f"{seed}/sentences")
    made = [_sentence(rng) for _ in range(_POOL)]
    return tuple((sentence, count_tokens(sentence)) for sentence in made)


@lru_cache(maxsize=4096)
def _block(seed: int, block_id: int, n_tokens: int) -> str:
    rng = random.Random(f"{seed}/block/{block_id}")
    return _text(_sentences(seed), rng, n_tokens)


def _sentence(rng: random.Random) -> str:
    said = [rng.choice(words.STARTS), *_clause(rng)]
    if rng.random() < 0.4:
        said += [rng.choice(words.JOINS), rng.choice(words.DETERMINERS), *_clause(rng)]
    return " ".join(said) + "."


def _clause(rng: random.Random) -> list[str]:
    said = [rng.choice(words.NOUNS), rng.choice(words.VERBS), rng.choice(words.DETERMINERS)]
    if rng.random() < 0.6:
        said.append(rng.choice(words.ADJECTIVES))
    said.append(rng.choice(words.NOUNS))
    if rng.random() < 0.5:
        said += [
            rng.choice(words.PREPOSITIONS),
            rng.choice(words.DETERMINERS),
            rng.choice(words.NOUNS),
        ]
    return said
