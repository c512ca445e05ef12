"""Matrix products with a fixed weight, quick for the few rows of a decode step.

For 4 to 64 rows, float32 products on the stored order spend half their time rearranging the
weight. A second copy in oneDNN's blocked order saves that, for its size in memory: decode steps of
4 to 16 sequences took 0.5–0.65 of the time. Wider products and bfloat16 gain nothing.
"""

from typing import Any, Final

import torch
from torch.nn import functional

_FEWEST_ROWS: Final = 4
_MOST_ROWS: Final = 64
_CAPABLE: Final = ("AVX2", "AVX512")


class Linear:
    """x @ weightᵀ for a weight [out, in]; `is_packed` keeps the second copy where it pays."""

    def __init__(self, weight: torch.Tensor, *, is_packed: bool) -> None:
        self.weight = weight
        self._packed: Any = None
        if is_packed and weight.dtype is torch.float32 and _can_pack():
            with torch.inference_mode():
                self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 16)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, in] to [rows, out]."""
        if self._packed is None or not _FEWEST_ROWS <= x.shape[0] <= _MOST_ROWS:
            return functional.linear(x, self.weight)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, None, "none", [], ""
        )
        return product


def _can_pack() -> bool:
    # Operators that torch's own compiler emits for x86; torch is pinned to one release.
    return (
        torch._C._has_mkldnn
        and torch.backends.cpu.get_cpu_capability() in _CAPABLE
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
