"""Whether a port is free, asked before anything starts."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from app.errors import PortTakenError, UsageError


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port somebody will listen on, and the option that moves it."""

    use: str
    port: int
    option: str
    host: str = "127.0.0.1"


def require_free(wanted: Iterable[Wanted]) -> None:
    """Raise `PortTakenError` for the first port in use, `UsageError` for two alike."""
    seen: dict[int, Wanted] = {}
    for want in wanted:
        if want.port in seen:
            other = seen[want.port]
            raise UsageError(
                f"{other.option} and {want.option} are both {want.port}: give each its own port."
            )
        seen[want.port] = want
        if not is_free(want.host, want.port):
            raise PortTakenError(
                f"port {want.port} for the {want.use} is in use: stop what listens there"
                f" or choose another with {want.option}."
            )


def is_free(host: str, port: int) -> bool:
    """Whether a listener could bind now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
