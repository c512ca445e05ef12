"""Servers of the probe's tests."""

from collections.abc import Iterator

import pytest
from scripted import Receiver, Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        yield server
