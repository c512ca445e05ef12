"""Numbers as a person reads them; unknown is never zero."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from app.format import UNKNOWN, cell, clock, count, ms, percent, usd


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (usd(None), UNKNOWN),
        (usd(0), "$0"),
        (usd(Decimal("0.000000123")), "$0.000000123"),
        (usd(0.0175097), "$0.0175"),
        (usd(1234.5), "$1,234.50"),
        (count(None), UNKNOWN),
        (count(12345), "12,345"),
        (percent(None), UNKNOWN),
        (percent(0.8333), "83.3 %"),
        (ms(None), UNKNOWN),
        (ms(0.0012345), "1.23 ms"),
        (ms(2.5), "2,500 ms"),
        (clock(None), UNKNOWN),
        (clock(datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)), "03:04:05.678"),
        (cell(None, "USD"), UNKNOWN),
        (cell(1234.0, "tokens"), "1,234"),
        (cell(0.00028, "USD"), "0.00028"),
    ],
)
def test_shown(shown: str, expected: str) -> None:
    assert shown == expected
