"""The outermost layer: who is let in, under which request id, and what never reaches an operation."""

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from service.operations import OPERATIONS
from tests.serving import Api, Server, refused

pytest_plugins = ["tests.serving_fixtures"]

ROUTES = [
    *((operation.route.method, operation.route.path) for operation in OPERATIONS),
    *(("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/nowhere")),
]
every_route = pytest.mark.parametrize(("method", "path"), ROUTES)


def raw(server: Server, request: bytes) -> tuple[int, bytes]:
    """Send bytes on a socket of its own; the status and the whole answer, while our side stays open."""
    address = urlsplit(server.owner.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer or b'"errors"' not in answer:
            part = connection.recv(65_536)
            if not part:
                break
            answer += part
    return int(answer.split(b" ", 2)[1]), answer


@every_route
@pytest.mark.parametrize("headers", [
    {"host": "evil.example"}, {"host": "127.0.0.1.evil.example"}, {"host": "localhost@evil.example"},
    {"host": ""},
    {"host": "[::"}, {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://localhost.evil.example"},
], ids=str)  # fmt: skip
def test_a_foreign_host_or_origin_is_refused_on_every_route(
    api: Api, method: str, path: str, headers: dict[str, str]
) -> None:
    refused(api.request(method, path, b"" if method == "POST" else None, headers=headers), 403, "forbidden")


@pytest.mark.parametrize("headers", [
    {"host": "localhost"}, {"host": "LOCALHOST:1"}, {"host": "127.0.0.1:8377"}, {"host": "[::1]:8377"},
    {"origin": "http://localhost:3000"}, {"origin": "http://127.0.0.1"},
], ids=str)  # fmt: skip
def test_this_machine_is_served_by_any_of_its_names(api: Api, headers: dict[str, str]) -> None:
    assert api.get("/brain/stats", headers=headers).status_code == 200


@every_route
@pytest.mark.parametrize("credential", ["Bearer brain_1_nope", "Bearer", "Basic YTpi", "", "Bearer caf\xe9"])
def test_an_unknown_credential_is_refused_on_every_route(
    api: Api, method: str, path: str, credential: str
) -> None:
    headers = {"authorization": credential.encode("latin-1")}
    refused(api.request(method, path, headers=headers), 401, "unauthenticated")  # type: ignore[arg-type]


def test_the_token_of_the_owner_is_a_credential(shared_server: Server, api: Api) -> None:
    headers = {"authorization": f"bearer {shared_server.owner.token}"}
    assert api.get("/brain/stats", headers=headers).status_code == 200


@pytest.mark.parametrize("header", ["X-Brain-Agent", "X-Brain-User"])
@pytest.mark.parametrize("name", ["", "café".encode(), "🦊".encode(), b"\xff", b"a\tb", "x" * 129])
def test_a_name_that_is_not_printable_ascii_is_refused(api: Api, header: str, name: str | bytes) -> None:
    problem = refused(api.get("/brain/stats", headers={header: name}), 422, "invalid_argument", header)
    assert "1 to 128 printable ASCII characters" in problem["detail"]


@pytest.mark.parametrize("header", ["Host", "Origin", "Authorization", "X-Brain-Agent", "X-Brain-User"])
def test_who_calls_is_not_said_twice(shared_server: Server, header: str) -> None:
    head = f"GET /brain/stats HTTP/1.1\r\nhost: localhost\r\n{header}: localhost\r\n{header}: a\r\n\r\n"
    status, answer = raw(shared_server, head.encode())
    assert status == 422 and f"{header}: is given twice".encode() in answer


@pytest.mark.parametrize("name", ["a/b", "..", "%2e", "a::b", "main", "x" * 128, "a b", '"', "null", "{}"])
def test_any_printable_name_is_a_namespace_of_its_own(api: Api, name: str) -> None:
    here = api.of(agent=f"{api.agent}{name}"[:128], user=name)
    added = here.add("Named.")["memory"]
    assert (added["agent_id"], added["user_id"]) == (here.agent, name)
    assert here.memory(added["memory_id"])["user_id"] == name
    assert here.search("named")["results"][0]["memory_id"] == added["memory_id"]


def test_a_request_id_is_echoed(api: Api) -> None:
    for given in ("r-1", "A.b_c-9", "x" * 128):
        answer = api.get("/brain/stats", headers={"x-request-id": given})
        assert answer.headers["x-request-id"] == answer.json()["request_id"] == given


@pytest.mark.parametrize(
    "hostile", [b"x" * 1024, b"a b", b"a\xff", b"", b"<script>", b"a;b", b"a\tb"], ids=repr
)
def test_a_hostile_request_id_is_replaced_by_a_new_one(api: Api, hostile: bytes) -> None:
    answer = api.get("/brain/stats", headers={"x-request-id": hostile})  # type: ignore[dict-item]
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == answer.json()["request_id"]
    assert len(answer.json()["request_id"]) == 16


def test_a_request_id_can_not_add_a_header(shared_server: Server) -> None:
    _, answer = raw(
        shared_server,
        b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nx-request-id: a\r\n set-cookie: b=c\r\n"
        b"x-brain-agent: a\r\nconnection: close\r\n\r\n",
    )
    assert b"set-cookie:" not in answer.lower().split(b"\r\n\r\n")[0]


@pytest.mark.parametrize(
    "path", ["/", "/brain", "/brain/memory/", "/brain/memory/batch/", "/Brain/stats", "/readyz/"]
)
def test_an_unknown_route_is_a_problem_document(api: Api, path: str) -> None:
    assert "openapi.json" in refused(api.get(path), 404, "not_found")["hint"]


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("PUT", "/brain/memory/018f", {"GET", "HEAD", "PATCH", "DELETE"}),
    ("PUT", "/brain/memory", {"GET", "HEAD", "POST"}),
    ("PUT", "/brain/memory/search", {"GET", "HEAD", "PATCH", "DELETE", "POST"}),
    ("PUT", "/brain/memory/batch", {"GET", "HEAD", "PATCH", "DELETE", "POST"}),
    ("POST", "/brain/stats", {"GET", "HEAD"}),
    ("POST", "/healthz", {"GET", "HEAD"}),
    ("OPTIONS", "/readyz", {"GET", "HEAD"}),
    ("TRACE", "/metrics", {"GET", "HEAD"}),
])  # fmt: skip
def test_a_wrong_method_is_answered_with_every_right_one(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    answer = api.request(method, path)
    refused(answer, 405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", ["/brain/memory", "/brain/memory/search"])
def test_a_body_over_the_limit_is_refused_by_its_length_alone(shared_server: Server, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {512 * 1024 + 1}\r\n\r\n"
    status, answer = raw(shared_server, head.encode())  # not a byte of the body was sent
    assert status == 413 and b'"code":"too_large"' in answer and b"524288 bytes" in answer


def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long(shared_server: Server) -> None:
    head = b"POST /brain/memory HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    status, answer = raw(shared_server, head + chunk * 9)  # and no end
    assert status == 413 and b'"code":"too_large"' in answer


def test_a_body_over_the_limit_is_a_problem_document_for_a_client_that_sends_it(api: Api) -> None:
    problem = refused(api.post("/brain/memory", b" " * (512 * 1024 + 1)), 413, "too_large")
    assert "524288" in problem["detail"]
    assert api.post("/brain/memory", b" " * (512 * 1024)).status_code == 400
    assert api.post("/brain/memory/batch", b" " * (512 * 1024 + 1)).status_code == 400  # its limit is higher


def test_a_request_that_is_refused_leaves_the_connection_usable(api: Api) -> None:
    with httpx.Client(base_url=api.http.base_url, trust_env=False, timeout=60) as client:
        for _ in range(3):
            assert client.post("/brain/memory", content=b"x" * 600_000).status_code == 413
            assert client.get("/healthz").json() == {"status": "ok"}


def test_a_mistyped_header_of_ours_is_refused_with_the_near_one(api: Api) -> None:
    answer = api.get("/brain/memory", headers={"x-brain-agnet": "bob"})
    problem = refused(answer, 422, "invalid_argument", "X-Brain-Agnet")
    assert "did you mean X-Brain-Agent?" in problem["detail"]
