"""What can go wrong inside the serving stack.

StackError
├── ModelError      weights or tokenizer can't be had
├── KvError         the page pool can't be made, or its books don't balance
├── TransferError   pages can't be read from another worker
├── RequestError    a request is refused; carries the HTTP status it is answered with
└── FleetError      the stack's processes can't be started or kept running
"""


class StackError(Exception):
    """Base of the stack's errors; the message is one sentence for a person."""


class ModelError(StackError):
    """The model's weights or tokenizer can't be had."""


class KvError(StackError):
    """The KV page pool can't be made, or its books don't balance."""


class TransferError(StackError):
    """Another worker's pages can't be read; `is_incompatible` when they never could be."""

    def __init__(self, message: str, *, is_incompatible: bool = False) -> None:
        super().__init__(message)
        self.is_incompatible = is_incompatible


class RequestError(StackError):
    """A request the gateway refuses: `code` is the OpenAI error code, `param` the faulty field."""

    def __init__(
        self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class FleetError(StackError):
    """The stack's processes can't be started or kept running."""
