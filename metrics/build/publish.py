"""Publishing: a new warehouse file beside the old one, then one rename.

Readers that have the old file open go on reading it; the next one to open the path gets the new.
"""

import os
from pathlib import Path
from uuid import uuid4

from metrics.build.workspace import Workspace


def publish(work: Workspace, warehouse: Path) -> None:
    """Copy every published relation to a new file and put it at `warehouse`, durably."""
    fresh = warehouse.with_name(f".{warehouse.name}.{uuid4().hex}.tmp")
    try:
        work.export(fresh)
        fresh.replace(warehouse)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(warehouse.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
