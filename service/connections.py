"""uvicorn's HTTP/1.1 connections: a bound on what a request may send before its body, and one system call for
a response's head and body."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024  # bytes of request line and headers, besides the first that were read (256 KiB at most)

_TEXT = b"The request line and headers are too long.\n"
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TEXT), _TEXT)
)


class Connection(HttpToolsProtocol):
    """Refuses endless headers. The parser puts a long one together piece by piece, on the event loop: one of
    100 MB would stop every other answer for minutes."""

    _in_head = False
    _head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = _Joined(transport, self.loop)  # type: ignore[assignment]

    def on_message_begin(self) -> None:
        self._in_head, self._head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        begun = self._in_head  # else the data may hold the body of the request before
        super().data_received(data)
        if begun and self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.transport.write(_REFUSAL)
                self.transport.close()


class _Joined:
    """A transport that sends two writes as one, when the second comes before the loop turns. uvicorn writes a
    response's head and its body apart, and a write to a socket costs as much as half of a read by id."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport = transport
        self._loop = loop
        self._held = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        else:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held and not self.is_closing():  # the client may have gone meanwhile
            held, self._held = self._held, b""
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)  # what else a transport can, which nobody calls often
