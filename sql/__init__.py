"""What every number means: one SQL model a file, read by `metrics` and by nobody else.

This package holds text, not code; `metrics.build.models` finds the files through `SQL_ROOT`.
"""

from pathlib import Path

SQL_ROOT = Path(__file__).parent
