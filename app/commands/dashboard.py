"""`tokenmill dashboard`: becomes Streamlit's server over the store."""

import os
import sys
from pathlib import Path

import typer

from app.options import DEFAULT_STORE, DashboardPortOption, StoreOption, usable_store
from app.ports import Wanted, require_free
from app.rooms import require

APP = Path(__file__).resolve().parent.parent
SERVER_OPTIONS = {
    "server.headless": "true",
    "server.address": "127.0.0.1",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.showErrorDetails": "none",
    "client.toolbarMode": "minimal",
    "theme.base": str(APP / "theme.toml"),
}


def dashboard(
    store: StoreOption = DEFAULT_STORE, dashboard_port: DashboardPortOption = 8501
) -> None:
    """Show the store in a browser, live.

    \b
    Example:
      tokenmill dashboard --store ./tokenmill-store --dashboard-port 8501
    """
    require("dashboard", "analytics", "streamlit", "duckdb", "plotly")
    require_free([Wanted("dashboard", dashboard_port, "--dashboard-port")])
    os.environ["TOKENMILL_STORE"] = str(usable_store(store))
    options = SERVER_OPTIONS | {"server.port": str(dashboard_port)}
    flags = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    # exec keeps the process, so whoever supervises us supervises Streamlit.
    os.execv(
        sys.executable,
        [sys.executable, "-m", "streamlit", "run", str(APP / "main.py"), *flags],
    )


def add_to(cli: typer.Typer) -> None:
    """Register the command."""
    cli.command()(dashboard)
