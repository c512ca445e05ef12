"""Everything the command line says no with, each with one sentence for the person who typed.

AppError                 exit 1
├── MissingExtraError    a room's packages aren't installed
├── PortTakenError       something else listens there
├── StoreUnusableError   the store's folder can't be made or written
└── ChildFailedError     a supervised process died for good
UsageError               exit 2: the options make no sense together
"""


class AppError(Exception):
    """Base of the room's errors; `str()` is one sentence fit for a terminal."""

    exit_code = 1


class MissingExtraError(AppError):
    """The command needs packages that this environment hasn't."""


class PortTakenError(AppError):
    """A port that a service needs is in use."""


class StoreUnusableError(AppError):
    """The store can't be made or written."""


class ChildFailedError(AppError):
    """A supervised process died and could not be kept alive."""


class UsageError(AppError):
    """The options are wrong, alone or together."""

    exit_code = 2
