"""Everything that can go wrong in this room, as one tree.

IngestError
├── StoreError       the store can't be opened, or is of a newer format
├── ReceiverError    the receiver can't start: port taken, name in use
├── DialectError     a rule file doesn't say what a rule file must
├── BodyError        a request's body can't be used
│   ├── UnreadableBodyError   not the protobuf it claims to be, or torn
│   ├── BodyTooLargeError     over the limit, before or after inflation
│   └── UnsupportedBodyError  a content type or encoding that isn't spoken here
└── BusyError        the queue is full, the disk failed or the receiver is closing: send it again
"""


class IngestError(Exception):
    """Base of the room's errors; `str()` is one sentence for the operator or the sender."""


class StoreError(IngestError):
    """The store can't be used."""


class ReceiverError(IngestError):
    """The receiver can't start."""


class DialectError(IngestError):
    """A dialect file is wrong."""


class BodyError(IngestError):
    """A request's body can't be used; sending it again won't help."""


class UnreadableBodyError(BodyError):
    """The bytes aren't what they claim to be."""


class BodyTooLargeError(BodyError):
    """The body is over the limit."""


class UnsupportedBodyError(BodyError):
    """Content type or encoding isn't spoken here."""


class BusyError(IngestError):
    """Not now: nothing was kept, and the sender should try again."""
