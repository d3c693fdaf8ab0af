"""What comes before a body, on the raw connection: bounded in a request, and never kept back in an answer."""

import json
import socket
from collections.abc import Iterable

import pytest

from tests.serving import Api

pytest_plugins = ["tests.serving_fixtures"]

ENOUGH = 2_000_000  # bytes, far over what is taken


def talk(api: Api, parts: Iterable[bytes]) -> bytes:
    """Everything that the server answers until it closes or nothing more is to come."""
    url = api.http.base_url
    answer = b""
    with socket.create_connection((url.host, url.port or 0), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while received := connection.recv(65_536):
                answer += received
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was told enough
    return answer


BEGIN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "head",
    [
        [BEGIN, b"X-Long: ", *[b"a" * 10_000] * (ENOUGH // 10_000)],
        [BEGIN, *[b"X-%d: some value or other\r\n" % number for number in range(ENOUGH // 25)]],
        [b"GET /", *[b"a" * 10_000] * (ENOUGH // 10_000)],
    ],
    ids=["one header", "many headers", "request line"],
)
def test_an_endless_head_is_refused_and_nobody_else_notices(api: Api, head: list[bytes]) -> None:
    assert b" 200 " not in talk(api, [*head, b"\r\n\r\n"])
    assert api.get("/healthz").status_code == 200


def test_a_long_head_and_long_bodies_behind_each_other_are_taken(api: Api) -> None:
    answer = talk(api, [BEGIN, b"X-Long: " + b"a" * 30_000, b"\r\nConnection: close\r\n\r\n"])
    assert answer.startswith(b"HTTP/1.1 200 ")
    body = json.dumps({"content": "A short text."}).encode() + b" " * 50_000
    head = (
        b"POST /brain/memory HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Brain-Agent: %s\r\nContent-Length: %d\r\n\r\n"
    )
    request = head % (str(api.agent).encode(), len(body)) + body
    stream = request * 6 + BEGIN + b"Connection: close\r\n\r\n"
    answer = talk(api, [stream[start : start + 9_999] for start in range(0, len(stream), 9_999)])
    assert answer.count(b"HTTP/1.1 20") == 7, answer


def test_a_head_that_no_body_follows_is_sent_at_once(api: Api) -> None:
    url = api.http.base_url
    body = b'{"content": "A text that waits to be asked for."}'
    head = b"POST /brain/memory HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Brain-Agent: %s\r\nExpect: 100-continue\r\n"
    waiting = head % str(api.agent).encode() + b"Content-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection((url.host, url.port or 0), timeout=30) as connection:
        connection.sendall(BEGIN.replace(b"GET", b"HEAD") + b"\r\n")
        assert connection.recv(65_536).endswith(b"\r\n\r\n")
        connection.sendall(waiting)
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201 ")
