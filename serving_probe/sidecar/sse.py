"""Server-sent events, parsed from any split of bytes, each with its exact bytes kept.

Knows the event stream format of the WHATWG HTML standard (section 9.2.6) and nothing of what the
events say. Only `data` fields are read; the exact bytes let a proxy pass on or drop whole events.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""An event longer than this is passed on unread, so a broken server can't fill the memory."""

# Atomic groups: CRLF is one line end and never read as CR followed by LF.
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: `data` as the standard joins it (None: a comment or keep-alive), `raw` as sent."""

    data: bytes | None
    raw: bytes


class SseParser:
    """Turns bytes into events; concatenated `raw` of all events and `flush` equal the input."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes.

        A final CR is held until the next byte tells whether it is half of a CRLF, so a server that
        ends lines with a lone CR is read one byte late.
        """
        buffer = self._buffer
        buffer += data
        events = []
        start = 0
        while match := _BLANK_LINE.search(buffer, max(start, self._scanned)):
            end = match.end()
            if end == len(buffer) and buffer[-1] == 0x0D:
                break
            events.append(_event(bytes(buffer[start:end])))
            start = self._scanned = end
        del buffer[:start]
        # A line end may be split: CRLF CRLF is four bytes, three of which may be here already.
        self._scanned = max(0, len(buffer) - 3)
        if len(buffer) > MAX_EVENT_BYTES:
            events.append(SseEvent(data=None, raw=self.flush()))
        return events

    def flush(self) -> bytes:
        """The bytes of an unfinished event; the standard says such an event is not dispatched."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        return rest


def _event(raw: bytes) -> SseEvent:
    lines = []
    for line in _LINE_END.split(raw.removeprefix(_BOM)):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return SseEvent(data=b"\n".join(lines) if lines else None, raw=raw)
