"""A real receiver in a process of its own, and what lies in its store."""

import http.client
import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import duckdb

from ingest.receiver import ReceiverConfig

_PROGRAM = """
import sys
from ingest.errors import IngestError
from ingest.receiver import ReceiverConfig, run_receiver
try:
    run_receiver(
        ReceiverConfig.model_validate_json(sys.argv[1]), lambda url: print(url, flush=True)
    )
except IngestError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


class ReceiverProcess:
    """`with ReceiverProcess(store) as receiver`: listens on any free port; SIGTERM at the end."""

    def __init__(self, store: Path, **config: Any) -> None:
        self.store = store
        self._config = ReceiverConfig(store=store, **{"port": 0, **config})

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _PROGRAM, self._config.model_dump_json()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with suppress(ValueError):
            self.finish()

    def finish(self) -> tuple[int, str]:
        """(exit code, what it wrote to stderr), when it has ended by itself."""
        _, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stderr

    def post(self, path: str, body: bytes, **headers: str) -> "Answer":
        """POST with the given headers, underscores for hyphens; protobuf unless they say else."""
        return post(self.url, path, body, **headers)

    def get(self, path: str) -> Any:
        """The JSON at `path`."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found


class Answer:
    """A response, read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def post(url: str, path: str, body: bytes, **headers: str) -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    sent = {"content-type": "application/x-protobuf"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body, sent)
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def rows(store: Path, select: str) -> list[tuple[Any, ...]]:
    """What `select … from segment` gives over every segment of `store`."""
    con = duckdb.connect()
    con.execute(f"create view segment as from read_parquet('{store}/incoming/*/*.parquet')")
    found: list[tuple[Any, ...]] = con.execute(select).fetchall()
    con.close()
    return found
