"""The replay's tests share the scripted servers with the probe's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "probe"))

from scripted import Receiver, Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        yield server
