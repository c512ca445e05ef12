"""Service-level files: what is read, and the one sentence for what can't be."""

from pathlib import Path

import pytest

from metrics.build.build import DATA
from metrics.errors import SloFileError
from metrics.ledger.slo import SCHEMA, load_slo_classes

GOOD = """
version = "v1"
source = "a contract"
valid_from = 2026-01-01
valid_to = 2026-01-02T00:00:00+01:00

[[classes]]
name = "chat"
match = { models = ["llama-*"], tenants = ["acme"] }
ttft_s = 0.45
deadlines = { pace_s = 0.04, min_on_time_ratio = 0.9, fallback = "none" }
quality = { score = "helpful", threshold = 0.8, unscored = "exclude" }
"""


def test_the_shipped_file_asks_for_deadlines() -> None:
    classes = load_slo_classes(DATA / "slo" / "default.toml")
    assert classes.schema == SCHEMA
    first = classes.row(0, named=True)
    assert first["slo_class"] == "standard"
    assert (first["ttft_ns"], first["pace_ns"]) == (2_000_000_000, 200_000_000)
    assert first["models"] is None
    assert first["score_name"] is None


def test_a_class_becomes_a_row_in_whole_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "slo.toml"
    path.write_text(GOOD, encoding="utf-8")
    (row,) = load_slo_classes(path).to_dicts()
    # 2026-01-01T00:00Z is 1 767 225 600 s; the end is given an hour east of UTC.
    assert row["valid_from_unix_ns"] == 1_767_225_600_000_000_000
    assert row["valid_to_unix_ns"] == (1_767_225_600 + 23 * 3600) * 1_000_000_000
    assert row["ttft_ns"] == 450_000_000
    assert row["pace_ns"] == 40_000_000
    assert row["models"] == ["llama-*"]
    assert row["routes"] is None
    assert (row["score_threshold"], row["unscored"]) == (0.8, "exclude")


def test_a_folder_is_read_in_name_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        text = GOOD.replace('"v1"', f'"{name}"')
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    assert load_slo_classes(tmp_path)["slo_version"].to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('version = "v1"', "version = ", "is not valid TOML"),
        ("ttft_s = 0.45", "ttft_s = 0", "classes.0.ttft_s"),
        ("ttft_s = 0.45", "", "deadlines count from the TTFT limit"),
        ("ttft_s = 0.45", "tttf_s = 0.45", "classes.0.tttf_s"),
        ('fallback = "none"', 'fallback = "guess"', "'tpot' or 'none'"),
        ("min_on_time_ratio = 0.9", "min_on_time_ratio = 95", "min_on_time_ratio"),
        ("[[classes]]", '[[classes]]\nname = "chat"\n[[classes]]', "more than once"),
        (GOOD[GOOD.index("[[classes]]") :], "", "classes"),
        ("valid_to = 2026-01-02T00:00:00+01:00", "valid_to = 2026-01-01", "later than valid_from"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "slo.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(SloFileError) as caught:
        load_slo_classes(path)
    message = str(caught.value)
    assert said in message
    assert str(path) in message
    assert "\n" not in message


def test_what_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(SloFileError, match="No such file"):
        load_slo_classes(tmp_path / "none.toml")
    with pytest.raises(SloFileError, match="holds no service-level file"):
        load_slo_classes(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SloFileError, match="not UTF-8"):
        load_slo_classes(tmp_path / "bytes.toml")
