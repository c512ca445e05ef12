"""A small store, built for real once: collector process, probe's emitter, builder process."""

from pathlib import Path

import pytest

from tests.app import traffic
from tests.app.running import free_port, serving, tokenmill


@pytest.fixture(scope="session")
def built_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `traffic` in it, published."""
    store = tmp_path_factory.mktemp("store")
    port = free_port()
    collect = ("collect", "--store", str(store), "--otlp-port", str(port))
    with serving(f"http://127.0.0.1:{port}/healthz", *collect):
        traffic.send(f"http://127.0.0.1:{port}")
    built = tokenmill("build", "--store", str(store))
    assert built.returncode == 0, built.stderr
    return store
