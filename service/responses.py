"""JSON over HTTP: plain answers and problem documents (RFC 9457)."""

from typing import Any

import orjson
from starlette.responses import Response

from models.answers import Reply
from models.errors import BrainError

PROBLEM = "application/problem+json"
_PROBLEM = PROBLEM.encode()


def answer(reply: Reply) -> Response:
    """The HTTP response of a dispatched operation."""
    status = reply.status or 200
    response = _Document(orjson.dumps(reply.body), status)
    if reply.etag is not None:
        response.raw_headers.append((b"etag", reply.etag.encode("latin-1")))
    if reply.retry_after is not None:
        response.raw_headers.append((b"retry-after", b"%d" % reply.retry_after))
    return response


class _Document(Response):
    """Starlette works out the headers of each response anew; ours are known."""

    def __init__(self, body: bytes, status: int):
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json" if status < 400 else _PROBLEM),
        ]


def problem(error: BrainError, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """The response of a refusal that never reached an operation."""
    body = orjson.dumps(error.document(request_id))
    response = Response(body, error.status, headers, media_type=PROBLEM)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response


def document(value: Any, status: int = 200) -> Response:
    """Any JSON value."""
    return Response(orjson.dumps(value), status, media_type="application/json")
