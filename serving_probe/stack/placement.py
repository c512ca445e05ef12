"""Where an attempt goes: candidates gathered from the live workers and the prefix mirror.

Policies choose (`routing`); here is what they are shown. It sends nothing.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_probe.contract import Role
from serving_probe.stack.core import BLOCK_TOKENS
from serving_probe.stack.flight import Flight
from serving_probe.stack.kv.hashing import block_hashes, n_reusable_blocks
from serving_probe.stack.members import Member, Members
from serving_probe.stack.prefix_index import PrefixIndex
from serving_probe.stack.routing import DECODE_POLICIES, PREFILL_POLICIES, PrefillCandidate


class RoutingConfig(BaseModel):
    """How the router chooses, and when it gives up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefill_policy: Literal["least_predicted_seconds", "shortest_queue"] = "least_predicted_seconds"
    decode_policy: Literal["least_load"] = "least_load"
    max_queue: Annotated[int, Field(ge=1, description="attempts that wait for a worker")] = 256
    silence_s: Annotated[
        float, Field(gt=0, description="a worker that is silent longer counts as dead")
    ] = 3.0


class Placement:
    """Chooses workers among `members`; the index is fed by the router."""

    def __init__(self, config: RoutingConfig, members: Members, entry_role: Role) -> None:
        """`entry_role` is who takes prompts: prefill or unified workers."""
        self._members = members
        self._entry_role = entry_role
        self._choose_prefill = PREFILL_POLICIES[config.prefill_policy]
        self._choose_decode = DECODE_POLICIES[config.decode_policy]
        self.index = PrefixIndex()

    def prefill(self, flight: Flight) -> tuple[Member, int]:
        """The worker to compute this prompt, and how many of its tokens it should have cached."""
        members = self._members.of_role(self._entry_role)
        assert members, "admission asked for a live worker"
        candidates = self._candidates(flight, members)
        chosen = self._choose_prefill(len(flight.token_ids), candidates)
        at = next(i for i, member in enumerate(members) if member.worker_id == chosen)
        return members[at], candidates[at].cached_tokens

    def decode(self) -> Member | None:
        """The worker to decode on; None when none is alive."""
        members = {member.worker_id: member for member in self._members.of_role(Role.DECODE)}
        if not members:
            return None
        return members[self._choose_decode([m.decode_candidate() for m in members.values()])]

    def _candidates(self, flight: Flight, members: list[Member]) -> list[PrefillCandidate]:
        reusable = n_reusable_blocks(len(flight.token_ids))
        hashes: dict[tuple[str, str], tuple[str, ...]] = {}
        candidates = []
        for member in members:
            kind = (member.hello.model_hash, member.hello.dtype)
            if kind not in hashes:
                hashes[kind] = block_hashes(flight.token_ids, *kind, flight.cache_scope)[:reusable]
            overlap = self.index.overlap_blocks(member.worker_id, hashes[kind])
            candidates.append(
                PrefillCandidate(
                    worker_id=member.worker_id,
                    queued_tokens=member.queued_tokens,
                    cached_tokens=overlap * BLOCK_TOKENS,
                    tokens_per_s=member.tokens_per_s,
                )
            )
        return candidates
