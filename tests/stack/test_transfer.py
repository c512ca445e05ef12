"""Pages moved between pools: what arrives computes the same, what can't be trusted is refused."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
import torch

from serving_probe.stack.kv.pool import PagePool, PageShape
from serving_probe.stack.model.llama import Model, Row, load_model
from serving_probe.stack.transfer import lease
from serving_probe.stack.transfer.link import Transfer, TransferState
from serving_probe.stack.transfer.shm import ShmLink

TOKENS = list(b"All happy families are alike; each unhappy family is unhappy in its own way.")
N_PAGES = -(-len(TOKENS) // 16)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    return load_model("tiny", "float32")


@contextmanager
def linked(model: Model, n_pages: int = 32) -> Iterator[tuple[ShmLink, PagePool]]:
    """One worker's pool and its link."""
    shape = PageShape.of(model.config, model.model_hash, model.dtype)
    pool = PagePool(f"tmtest-{uuid4().hex}", shape, n_pages)
    link = ShmLink()
    link.register(pool)
    try:
        yield link, pool
    finally:
        pool.unlink()


def moved(link: ShmLink, transfer: Transfer, into: list[int]) -> TransferState:
    """Drive a transfer to its end."""
    state = link.begin(transfer, into)
    while not state.is_final:
        state = link.poll(transfer)
    return state


def test_handed_over_kv_computes_what_recomputed_kv_does(model: Model) -> None:
    with linked(model) as (source, source_pool), linked(model) as (sink, sink_pool):
        there, here = list(range(20, 20 + N_PAGES)), list(range(3, 3 + N_PAGES))
        model.forward([Row(TOKENS, 0, there)], source_pool.tensor)
        export = source.export("prefill-0", there, len(TOKENS), 30.0)
        transfer = Transfer.offered(export)
        assert transfer.state is TransferState.OFFERED
        assert moved(sink, transfer, here) is TransferState.DONE
        handed = model.forward([Row([65], len(TOKENS), here)], sink_pool.tensor)
        again = model.forward([Row([*TOKENS, 65], 0, range(10, 20))], sink_pool.tensor)
        assert (handed - again).abs().max() < 1e-3
        assert source.release(export.lease_id) == tuple(there)
        assert source.release(export.lease_id) == ()


def test_pages_of_another_number_format_are_converted(model: Model) -> None:
    rounded = load_model("tiny", "bfloat16")
    with linked(rounded) as (source, source_pool), linked(model) as (sink, sink_pool):
        pages = list(range(N_PAGES))
        rounded.forward([Row(TOKENS, 0, pages)], source_pool.tensor)
        transfer = Transfer.offered(source.export("prefill-0", pages, len(TOKENS), 30.0))
        assert moved(sink, transfer, pages) is TransferState.DONE
        assert torch.equal(sink_pool.tensor[:N_PAGES], source_pool.tensor[:N_PAGES].float())


def test_another_models_pages_are_incompatible(model: Model) -> None:
    stranger = Model(model.config, "float32", _tensors(model), "0" * 16)
    with linked(stranger) as (source, _), linked(model) as (sink, _):
        transfer = Transfer.offered(source.export("prefill-0", [0], 16, 30.0))
        assert moved(sink, transfer, [0]) is TransferState.INCOMPATIBLE
        assert "run both with the same model" in transfer.reason


def test_pages_are_not_read_after_their_lease(model: Model) -> None:
    with linked(model) as (source, _), linked(model) as (sink, sink_pool):
        transfer = Transfer.offered(source.export("prefill-0", [0], 16, 30.0))
        transfer.expires_at = time.monotonic()
        assert moved(sink, transfer, [0]) is TransferState.EXPIRED
        assert transfer.n_moved == 0
        assert not sink_pool.tensor.any()


def test_a_vanished_exporter_fails_the_transfer(model: Model) -> None:
    with linked(model) as (sink, _):
        with linked(model) as (source, _):
            transfer = Transfer.offered(source.export("prefill-0", [0], 16, 30.0))
        assert moved(sink, transfer, [0]) is TransferState.FAILED
        assert "prefill-0 is gone" in transfer.reason


def test_a_lease_is_held_a_little_longer_than_told(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(lease.time, "monotonic", lambda: clock[0])
    with linked(model) as (source, _):
        export = source.export("prefill-0", [0, 1], 20, 5.0)
        clock[0] = 105.5
        assert source.overdue() == ()
        clock[0] = 106.5
        assert source.overdue() == (export.lease_id,)


def _tensors(model: Model) -> dict[str, torch.Tensor]:
    from serving_probe.stack.model.weights import load_weights

    return load_weights(model.config, model.dtype)[0]
