"""Everything that can go wrong in this room, each with one sentence for the person who sees it.

MetricsError
├── LedgerError          a file that says what things cost or what was promised
│   ├── PriceCardError
│   └── SloFileError
├── BuildError
│   ├── BuilderBusyError another builder holds the store
│   └── ModelError       a SQL model is malformed or failed
└── QueryError
    ├── NothingPublishedError
    └── QueryFailedError
"""


class MetricsError(Exception):
    """Base of the room's errors; `str()` is one sentence fit for a terminal."""


class LedgerError(MetricsError):
    """A ledger file can't be read or makes no sense."""


class PriceCardError(LedgerError):
    """A price card can't be read or makes no sense."""


class SloFileError(LedgerError):
    """A service-level file can't be read or makes no sense."""


class BuildError(MetricsError):
    """The warehouse can't be built."""


class BuilderBusyError(BuildError):
    """Another process is building this store."""


class ModelError(BuildError):
    """A SQL model is malformed, or failed on the data."""


class QueryError(MetricsError):
    """A reader's question can't be answered."""


class NothingPublishedError(QueryError):
    """The store has no warehouse yet."""


class QueryFailedError(QueryError):
    """The warehouse refused a query."""
