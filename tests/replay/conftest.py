"""The replay's tests share the scripted upstream with the probe's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "probe"))

from scripted import Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server
