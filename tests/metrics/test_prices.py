"""Price cards: exact rates from TOML, and one sentence for each way a card can be wrong."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from metrics.errors import PriceCardError
from metrics.ledger.prices import HOUR_NS, SCHEMA, load_price_cards

SHIPPED = Path(__file__).parents[2] / "data" / "prices"

RENTED = """
[[cards]]
id = "h"
kind = "rented"
worker_type = "H"
usd_per_accelerator_hour = 0.1
source = "a test"
source_date = 2026-01-01
"""


def cards_of(folder: Path, text: str) -> list[tuple[object, ...]]:
    (folder / "cards.toml").write_text(text, encoding="utf-8")
    frame = load_price_cards(folder)
    assert frame.schema == SCHEMA
    return frame.select("line", "component", "basis", "nano_usd", "period_ns").rows()


def test_a_rented_card_is_exact(tmp_path: Path) -> None:
    extras = (
        "host_usd_per_hour = 0.000000001\nnetwork_usd_per_hour = 2\ncache_usd_per_gb_hour = 0.5"
    )
    assert cards_of(tmp_path, RENTED + extras) == [
        ("capacity", "rental", "accelerator", 100_000_000, HOUR_NS),
        ("host", "host", "worker", 1, HOUR_NS),
        ("network", "network", "worker", 2_000_000_000, HOUR_NS),
        ("cache_storage", "memory", "gigabyte", 500_000_000, HOUR_NS),
    ]


def test_an_owned_card_is_capital_over_its_life_and_energy(tmp_path: Path) -> None:
    # (30000 - 3720) over 3 years of 8760 h; 0.7 kW x 1.25 x 0.08 USD/kWh = 0.07 USD/h.
    owned = """
    [[cards]]
    id = "own"
    kind = "owned"
    worker_type = "H"
    usd_per_accelerator = 30000
    residual_usd_per_accelerator = 3720
    lifetime_years = 3
    kw_per_accelerator = 0.7
    pue = 1.25
    usd_per_kwh = 0.08
    source = "a test"
    source_date = 2026-01-01
    """
    assert cards_of(tmp_path, owned) == [
        ("capacity", "capital", "accelerator", 26_280 * 10**9, 3 * 8760 * HOUR_NS),
        ("capacity", "energy", "accelerator", 70_000_000, HOUR_NS),
    ]


def test_fleet_and_api_cards(tmp_path: Path) -> None:
    text = """
    [[cards]]
    id = "people"
    kind = "fleet"
    operations_usd_per_month = 7300
    network_usd_per_month = 730
    source = "a test"
    source_date = 2026-01-01

    [[cards]]
    id = "hosted"
    kind = "api"
    model = "m"
    usd_per_mtok_input = 0.15
    usd_per_mtok_cached_read = 0.075
    usd_per_mtok_output = 0.6
    source = "a test"
    source_date = 2026-01-01
    """
    assert cards_of(tmp_path, text) == [
        ("operations", "operations", "fleet", 7300 * 10**9, 730 * HOUR_NS),
        ("network", "network", "fleet", 730 * 10**9, 730 * HOUR_NS),
        ("api", "input", "mtok", 150_000_000, None),
        ("api", "cached_read", "mtok", 75_000_000, None),
        ("api", "output", "mtok", 600_000_000, None),
    ]


def test_validity_is_utc_and_may_follow_on(tmp_path: Path) -> None:
    text = (
        RENTED
        + "valid_to = 2026-02-01\n"
        + RENTED.replace('"h"', '"h2"')
        + "valid_from = 2026-02-01T01:00:00+01:00\n"
    )
    (tmp_path / "cards.toml").write_text(text, encoding="utf-8")
    frame = load_price_cards(tmp_path)
    change = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 10**9
    assert frame["valid_from_unix_ns"].to_list() == [None, change]
    assert frame["valid_to_unix_ns"].to_list() == [change, None]


def test_shipped_cards_price_what_they_must_and_name_their_source() -> None:
    cards = load_price_cards(SHIPPED)
    wanted = {"H100", "H200", "A100", "B200", "MI300X"}
    demo = {f"cpu-demo-{role}" for role in ("prefill", "decode", "unified")}
    assert wanted | demo <= set(cards["worker_type"])
    assert all(len(source) > 20 for source in cards["source"])
    assert cards["source_date"].null_count() == 0


def test_an_empty_folder_is_no_cards(tmp_path: Path) -> None:
    assert load_price_cards(tmp_path).schema == SCHEMA


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cards = [", "must be a TOML text file"),
        ("", "must hold \\[\\[cards\\]\\] tables and nothing else, but has nothing"),
        ("cards = 3", "must hold \\[\\[cards\\]\\] tables"),
        (RENTED + "[other]", "but has 'cards', 'other'"),
        ("[[cards]]\nid = 'h'", "card 'h' in .*kind"),
        ("[[cards]]\nkind = 'rented'", "card 'number 1' in .*field 'id'"),
        (RENTED.replace('"rented"', '"leased"'), "'rented', 'owned', 'fleet', 'api'"),
        (RENTED.replace("0.1", "-1"), "'usd_per_accelerator_hour': .*greater than or equal to 0"),
        (RENTED.replace("0.1", "nan"), "'usd_per_accelerator_hour': .*finite"),
        (RENTED.replace("0.1", "'dear'"), "'usd_per_accelerator_hour': .*but it is 'dear'"),
        (RENTED.replace("0.1", "0.0000000001"), "no more than 9 decimal places"),
        (RENTED + "usd_per_acelerator_hour = 1", "'usd_per_acelerator_hour': extra inputs"),
        (RENTED + "currency = 'EUR'", "'currency': input should be 'USD', but it is 'EUR'"),
        (
            RENTED + "valid_from = 2026-02-01\nvalid_to = 2026-01-01",
            "valid_to must be later than valid_from",
        ),
        (RENTED + RENTED, "'h' is in .* and again in"),
        (
            RENTED + RENTED.replace('"h"', '"h2"') + "valid_from = 2026-01-01",
            "'h' .* and 'h2' .* are both valid for worker_type 'H' at one time",
        ),
    ],
)
def test_a_bad_card_gets_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "cards.toml").write_text(text, encoding="utf-8")
    with pytest.raises(PriceCardError, match=says) as caught:
        load_price_cards(tmp_path)
    assert "\n" not in str(caught.value)
    assert "cards.toml" in str(caught.value)


def test_a_missing_folder_gets_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PriceCardError, match="cannot read the price card folder"):
        load_price_cards(tmp_path / "nowhere")


def test_bytes_that_are_no_text_get_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cards.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PriceCardError, match="must be a TOML text file"):
        load_price_cards(tmp_path)
