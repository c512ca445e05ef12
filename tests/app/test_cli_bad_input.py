"""Bad input: one sentence on standard error, exit 1 or 2, no traceback, nothing half-written."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import run
from tests.app.running import free_port, tokenmill


def said(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The one sentence."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("tokenmill: ")
    return lines[0]


@pytest.mark.parametrize(
    "text", ["not toml [", 'name = "x"\nworkers = []\n', 'name = "x"\ncolour = 1\n', None]
)
def test_unreadable_topology(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    if text is not None:
        path.write_text(text)
    for command in (("stack", "up"), ("demo", "--store", str(tmp_path / "store"))):
        assert str(path) in said(tokenmill(*command, "--topology", str(path)), 1)
    assert not (tmp_path / "store").exists()


def test_unreadable_price_card(tmp_path: Path) -> None:
    prices = tmp_path / "prices"
    prices.mkdir()
    (prices / "bad.toml").write_text('[[cards]]\nid = "x"\n')
    store = tmp_path / "store"
    sentence = said(tokenmill("build", "--store", str(store), "--prices", str(prices)), 1)
    assert "bad.toml" in sentence
    assert not (store / "warehouse.duckdb").exists()


def test_unreadable_slo_file(tmp_path: Path) -> None:
    slo = tmp_path / "slo.toml"
    slo.write_text("version = ")
    store = tmp_path / "store"
    assert "slo.toml" in said(tokenmill("build", "--store", str(store), "--slo", str(slo)), 1)


def test_unreadable_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,ten,2\n")
    out = tmp_path / "out.jsonl"
    sentence = said(tokenmill("replay", str(trace), "--out", str(out)), 1)
    assert "trace.csv" in sentence
    assert not out.exists()


def test_unknown_workload_stops_the_demo_before_it_starts(tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = tokenmill("demo", "--workload", "nothing-like-it", "--store", str(store))
    assert "nothing-like-it" in said(result, 1)
    assert not store.exists()


def test_taken_ports(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        free, other = str(free_port()), str(free_port())
        for command in (
            ("collect", *store, "--otlp-port", port),
            ("dashboard", *store, "--dashboard-port", port),
            ("up", *store, "--otlp-port", port, "--dashboard-port", free),
            ("up", *store, "--otlp-port", free, "--dashboard-port", port),
            ("demo", *store, "--port", port, "--otlp-port", free, "--dashboard-port", other),
            ("stack", "up", "--model", "tiny", "--port", port),
        ):
            assert f"port {port}" in said(tokenmill(*command), 1)
    assert not (tmp_path / "logs").exists()


def test_one_port_for_two(tmp_path: Path) -> None:
    port = str(free_port())
    store = ("--store", str(tmp_path))
    result = tokenmill("up", *store, "--otlp-port", port, "--dashboard-port", port)
    assert "--otlp-port and --dashboard-port" in said(result, 2)


def test_unwritable_store(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    store = ("--store", str(blocked / "store"))
    otlp = ("--otlp-port", str(free_port()))
    page = ("--dashboard-port", str(free_port()))
    for command in (
        ("collect", *otlp),
        ("build",),
        ("dashboard", *page),
        ("up", *otlp, *page),
        ("demo", *otlp, *page, "--port", str(free_port())),
    ):
        assert "--store" in said(tokenmill(*command, *store), 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_store(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "can't be" in said(tokenmill("collect", "--store", str(tmp_path)), 1)


def test_questions_before_the_first_build_and_wrong_ones(tmp_path: Path, built_store: Path) -> None:
    assert "nothing is published" in said(tokenmill("sql", "select 1", "--store", str(tmp_path)), 1)
    assert not list(tmp_path.iterdir())
    result = tokenmill("sql", "selekt 1", "--store", str(built_store))
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "Parser Error" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("up", "--otlp-port", "many"),
        ("up", "--otlp-port", "0"),
        ("sql",),
        ("sql", "select 1", "--format", "xml"),
        ("demo", "--headless"),
        ("build", "--nope"),
    ],
)
def test_bad_usage_is_exit_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)
    said(subprocess.CompletedProcess(arguments, code, *capsys.readouterr()), 2)


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from app.cli import run
sys.exit(run(sys.argv[1:]))
"""
ANALYTICS = ("duckdb", "polars", "streamlit", "plotly", "pyarrow", "ptars", "starlette", "numpy")
STACK = ("torch", "zmq", "safetensors", "tokenizers", "msgspec", "uvicorn")


def without(packages: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command where these packages can't be imported."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(names=packages), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("collect",), "analytics"),
        (("build",), "analytics"),
        (("dashboard",), "analytics"),
        (("sql", "select 1"), "analytics"),
        (("up",), "analytics"),
        (("demo",), "analytics,stack"),
        (("stack", "up"), "stack"),
    ],
)
def test_a_missing_extra_is_named(
    arguments: tuple[str, ...], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENMILL_STORE", str(tmp_path / "store"))
    sentence = said(without((*ANALYTICS, *STACK), *arguments), 1)
    assert f"pip install 'tokenmill[{extra}]'" in sentence
    assert not (tmp_path / "store").exists()


def test_the_base_alone_has_help_replay_and_probe() -> None:
    base_only = (*ANALYTICS, *STACK)
    for arguments in (("--help",), ("probe", "--help"), ("replay", "--help"), ("demo", "--help")):
        assert without(base_only, *arguments).returncode == 0
    result = without(base_only, "probe", "--upstream", "ftp://nowhere")
    assert "http" in said(result, 1)
    result = without(base_only, "replay", "demo", "--url", f"http://127.0.0.1:{free_port()}")
    said(result, 1)
