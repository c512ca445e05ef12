"""Names KV blocks: one chained hash per full block of a prompt.

Workers and the router's prefix index call this same function, so it is pure and light. A block's
hash covers all tokens before it, the weights, the KV number format and the cache scope: a block is
never found by another tenant, model or dtype.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from serving_probe.stack.core import BLOCK_TOKENS

_DIGEST_BYTES: Final = 8


def block_hashes(
    token_ids: Sequence[int], model_hash: str, dtype: str, cache_scope: str
) -> tuple[str, ...]:
    """16 hex digits for each full block of `token_ids`; a partial last block has none.

    64 bits can collide: whoever reuses a block on a hash compares its token ids as well.
    """
    seed = "\0".join((model_hash, dtype, str(BLOCK_TOKENS), cache_scope)).encode()
    parent = blake2b(seed, digest_size=_DIGEST_BYTES).digest()
    packed = array("I", token_ids).tobytes()
    block_bytes = BLOCK_TOKENS * array("I").itemsize
    hashes = []
    for start in range(0, len(packed) - block_bytes + 1, block_bytes):
        block = packed[start : start + block_bytes]
        parent = blake2b(parent + block, digest_size=_DIGEST_BYTES).digest()
        hashes.append(parent.hex())
    return tuple(hashes)


def n_reusable_blocks(n_tokens: int) -> int:
    """Most blocks of an `n_tokens` prompt that may come from a cache: one token is computed."""
    return max(0, n_tokens - 1) // BLOCK_TOKENS
