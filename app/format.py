"""Numbers as a person reads them: milliseconds, percent and dollars exist only here.

Unknown is a dash; it is never shown as zero.
"""

from datetime import datetime
from decimal import Decimal

UNKNOWN = "–"
Number = int | float | Decimal


def usd(value: Number | None) -> str:
    """Dollars with three significant digits below a dollar, cents above."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    if amount == 0:
        return "$0"
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    return f"${Decimal(f'{amount:.3g}'):f}"


def count(value: Number | None) -> str:
    """A whole number with thousands apart."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(ratio: Number | None, digits: int = 1) -> str:
    """A ratio of 0..1 as percent."""
    return UNKNOWN if ratio is None else f"{float(ratio) * 100:.{digits}f} %"


def ms(seconds: Number | None) -> str:
    """Seconds as milliseconds: three digits, or whole."""
    if seconds is None:
        return UNKNOWN
    value = float(seconds) * 1000
    return f"{value:,.0f} ms" if abs(value) >= 100 else f"{value:.3g} ms"


def clock(at: datetime | None) -> str:
    """A UTC instant's time of day, to the millisecond."""
    return UNKNOWN if at is None else at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def cell(value: object, unit: str) -> str:
    """A value in a plain table whose unit stands beside it."""
    if value is None:
        return UNKNOWN
    if not isinstance(value, int | float | Decimal):
        return str(value)
    number = float(value)
    return f"{number:,.0f}" if unit in COUNTED or number == int(number) else f"{number:,.4g}"


COUNTED = ("requests", "tokens")
"""Units that have no fractions."""
