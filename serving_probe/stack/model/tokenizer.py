"""Text to token ids and back, for both models; imports no torch, so the router can use it.

Text never turns into control tokens: only `chat` writes those, so a message that spells
`<|im_end|>` stays a message.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as Bpe
from tokenizers import decoders, models, pre_tokenizers

from serving_probe.stack.errors import ModelError
from serving_probe.stack.model.cache import cache_folder, locked, whole_file
from serving_probe.stack.model.config import TINY, model_config
from serving_probe.stack.model.source import gguf_path, open_gguf

_SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_CONTROL_TYPE: Final = 3  # GGUF's token type of control tokens


class Detokenizer:
    """One output's text, token by token; a character that isn't whole yet is held back."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text this token completes; empty for control tokens and part-characters."""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        """What was held back, at the end of the output."""
        return self._decoder.decode(b"", final=True)


class Tokenizer:
    """A model's vocabulary and its ChatML template."""

    def __init__(
        self,
        name: str,
        encode: Callable[[str], list[int]],
        token_bytes: Sequence[bytes],
        im_start: int,
        im_end: int,
    ) -> None:
        self.name = name
        self.vocab_size = len(token_bytes)
        self.max_context = model_config(name).max_context
        self.eos_token_ids = model_config(name).eos_token_ids
        self._encode = encode
        self._token_bytes = token_bytes
        self._im_start = im_start
        self._im_end = im_end

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, without any begin or end token."""
        return self._encode(text)

    def chat(self, messages: Iterable[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation (`role`, `content` each), open for the assistant's turn."""
        turns = [(message["role"], message["content"]) for message in messages]
        if turns and turns[0][0] != "system":
            turns.insert(0, ("system", _SYSTEM))
        newline = self._encode("\n")
        ids: list[int] = []
        for role, content in turns:
            ids += [self._im_start, *self._encode(f"{role}\n{content}"), self._im_end, *newline]
        return [*ids, self._im_start, *self._encode("assistant\n")]

    def detokenizer(self) -> Detokenizer:
        """A fresh detokenizer for one output."""
        return Detokenizer(self._token_bytes.__getitem__)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of whole output."""
        detokenizer = self.detokenizer()
        return "".join([detokenizer.push(i) for i in token_ids]) + detokenizer.flush()


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a model; raises `ModelError` when it can't be had."""
    if model_config(name) is TINY:
        return _byte_tokenizer()
    return _bpe_tokenizer(cache_folder("smollm2") / "tokenizer.json")


def _byte_tokenizer() -> Tokenizer:
    # 256 bytes, then <|im_start|>, <|im_end|>, <|endoftext|> and one spare to a round size.
    vocab = [bytes([i]) for i in range(256)] + [b""] * (TINY.vocab_size - 256)
    return Tokenizer("tiny", lambda text: list(text.encode()), vocab, 256, 257)


def _bpe_tokenizer(path: Path) -> Tokenizer:
    if not path.exists():
        with locked(path):
            if not path.exists():
                source = open_gguf(gguf_path())
                with whole_file(path) as draft:
                    _bpe_from_gguf(source).save(str(draft), pretty=False)
    try:
        bpe = Bpe.from_file(str(path))
        parts = json.loads(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises no narrower type
        raise ModelError(
            f"{path} isn't a tokenizer: {error}; delete it to make it anew."
        ) from error
    bpe.encode_special_tokens = True
    control = {token["content"]: token["id"] for token in parts["added_tokens"]}
    to_byte = _byte_alphabet()
    vocab = [b""] * bpe.get_vocab_size()
    for token, token_id in bpe.get_vocab().items():
        if token not in control:
            vocab[token_id] = bytes(to_byte[sign] for sign in token)

    def encode(text: str) -> list[int]:
        return list(bpe.encode(text, add_special_tokens=False).ids)

    return Tokenizer("smollm2", encode, vocab, control["<|im_start|>"], control["<|im_end|>"])


def _bpe_from_gguf(reader: Any) -> Bpe:
    fields = reader.fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges: list[str] = fields["tokenizer.ggml.merges"].contents()
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    bpe = Bpe(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(
        [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TYPE]
    )
    return bpe


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable sign for each byte, turned round: sign → byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    signs = {chr(byte): byte for byte in plain}
    return signs | {chr(256 + i): byte for i, byte in enumerate(others)}
