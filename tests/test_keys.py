"""Keys over real HTTP: who gets in, who administers them, and what never comes out."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from service import app
from service.callers import OPEN
from service.operations import OPERATIONS
from service.settings import Settings, SettingsError
from stores.schema import events
from tests.keyed import KEYS, Clock, Keyed, keyed_server
from tests.serving import JSON, refused, succeeded

ROUTES = [
    *((operation.route.method, operation.route.path) for operation in OPERATIONS),
    *(("GET", path) for path in ("/metrics", "/nowhere", KEYS)),
    ("POST", "/mcp"),
]
DAY_MS = 86_400_000
MCP_HELLO = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Keyed]:
    """With at least one key, so that the door is closed."""
    with keyed_server(tmp_path_factory.mktemp("keyed"), clock=clock, mcp={"toolsets": ["brain"]}) as running:
        running.create("first")
        yield running


def test_the_first_key_closes_the_door_and_no_revoking_or_restart_opens_it_again(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as keyed:
        assert keyed.anyone.add("Before any key.")["memory"]["user_id"] == "default"
        key = keyed.create("acme")
        refused(keyed.anyone.get("/brain/stats"), 401, "unauthenticated")
        holder = keyed.bearing(key["credential"])
        assert holder.stats()["total"] == 0  # another product
        keyed.revoke(key["key_id"])
        for caller in (holder, keyed.anyone):
            refused(caller.get("/brain/stats"), 401, "unauthenticated")
    with keyed_server(tmp_path) as keyed:
        refused(keyed.anyone.get("/brain/stats"), 401, "unauthenticated")
        problem = refused(keyed.bearing(key["credential"]).get("/brain/stats"), 401, "unauthenticated")
        assert problem["detail"] == f"Key {key['key_id']} was revoked."
        assert keyed.owner.stats()["total"] == 1  # what was written without keys is the owner's


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_with_keys_every_route_but_the_open_ones_asks_for_a_credential(
    keyed: Keyed, method: str, path: str
) -> None:
    answer = keyed.anyone.request(method, path, b"{}" if method != "GET" else None)
    assert "brain keys create" in refused(answer, 401, "unauthenticated")["hint"]
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", sorted(OPEN))
def test_the_open_routes_need_none(keyed: Keyed, path: str) -> None:
    assert keyed.anyone.get(path).status_code == 200
    refused(keyed.anyone.request("PUT", path), 405, "method_not_allowed")


def test_an_unknown_id_a_wrong_secret_and_nonsense_are_refused_with_the_same_words(keyed: Keyed) -> None:
    key = keyed.create("acme")
    id, secret = key["key_id"], key["credential"].split("_", 2)[2]
    credentials = (
        f"brain_{id}_{secret[:-1]}", f"brain_{id}_{secret}0", f"brain_{id}_{'0' * 64}", f"brain_{id}_",
        f"brain_{id}", f"brain_{'0' * 12}_{secret}", f"brain__{secret}", f"Brain_{id}_{secret}",
        f"{id}_{secret}", secret, "brain", "_", "__", "x" * 10_000,
    )  # fmt: skip
    details = {
        refused(keyed.bearing(one).get("/brain/stats"), 401, "unauthenticated")["detail"]
        for one in credentials
    }
    assert details == {"The credential is not known."}
    for header in (b"Bearer caf\xe9_a_b", b"Bearer brain_\xff_\xff", b"Basic YTpi", b"", b"Bearer"):
        answer = keyed.anyone.get("/brain/stats", headers={"authorization": header})
        refused(answer, 401, "unauthenticated")
    assert keyed.bearing(key["credential"]).stats()


def test_a_key_expires_at_its_time_and_only_its_holder_is_told(keyed: Keyed, clock: Clock) -> None:
    key = keyed.create("acme", expires_in_ms=DAY_MS)
    assert key["expires_at"] == key["created_at"] + DAY_MS
    holder = keyed.bearing(key["credential"])
    clock.now = key["expires_at"] - 1
    assert holder.stats()
    clock.now = key["expires_at"]
    problem = refused(holder.get("/brain/stats"), 401, "unauthenticated")
    assert problem["detail"] == f"Key {key['key_id']} has expired."
    guess = keyed.bearing(f"brain_{key['key_id']}_guess").get("/brain/stats")
    assert refused(guess, 401, "unauthenticated")["detail"] == "The credential is not known."


def test_a_revoked_key_is_refused_from_then_on_and_revoking_twice_is_harmless(keyed: Keyed) -> None:
    key = keyed.create("acme")
    holder = keyed.bearing(key["credential"])
    assert holder.stats()
    revoked = keyed.revoke(key["key_id"])
    refused(holder.get("/brain/stats"), 401, "unauthenticated")
    assert keyed.revoke(key["key_id"]) == revoked and revoked["revoked_at"] is not None
    refused(keyed.owner.request("DELETE", f"{KEYS}/nope"), 404, "key_not_found")


def test_the_default_key_reads_and_writes_up_to_official(keyed: Keyed) -> None:
    key = keyed.create("acme")
    assert key["rights"] == ["read", "write"] and key["agent"] is None and key["expires_at"] is None
    assert key["authority"] == "official" and key["acts_for_user"] is False


def test_without_keys_nobody_but_the_owner_names_a_product(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as keyed:
        named = {"x-brain-product": "acme"}
        refused(keyed.anyone.get("/brain/stats", headers=named), 403, "forbidden")
        assert succeeded(keyed.owner.get("/brain/stats", headers=named))["total"] == 0


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "via"])
def test_the_owners_token_counts_on_this_machine_only(keyed: Keyed, header: str) -> None:
    # A proxy on this machine calls from this machine, for whomever.
    answer = keyed.owner.get("/brain/stats", headers={header: "203.0.113.5"})
    refused(answer, 401, "unauthenticated")


@pytest.mark.parametrize(("method", "path"), [("GET", KEYS), ("POST", KEYS), ("DELETE", f"{KEYS}/abc")])
def test_no_key_however_mighty_administers_keys(keyed: Keyed, method: str, path: str) -> None:
    mighty = keyed.holder("acme", rights=["read", "write", "admin"], authority="policy")
    body = b'{"product": "acme"}' if method == "POST" else None
    refused(mighty.request(method, path, body), 403, "forbidden")
    refused(mighty.request(method, path, body, headers={"authorization": ""}), 401, "unauthenticated")


def test_without_keys_nobody_but_the_owner_administers_them(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as keyed:
        refused(keyed.anyone.post(KEYS, {"product": "acme"}), 403, "forbidden")
        assert succeeded(keyed.owner.get(KEYS)) == {"keys": []}


@pytest.mark.parametrize(("fields", "field"), [
    ({}, "product"), ({"product": ""}, "product"), ({"product": "café"}, "product"),
    ({"product": "a\n"}, "product"), ({"product": "x" * 129}, "product"), ({"product": 5}, "product"),
    ({"agent": ""}, "agent"), ({"rights": []}, "rights"), ({"rights": ["root"]}, "rights[0]"),
    ({"rights": "read"}, "rights"), ({"authority": "king"}, "authority"), ({"secret": "mine"}, "secret"),
    ({"expires_in_ms": 0}, "expires_in_ms"), ({"expires_in_ms": 10**18}, "expires_in_ms"),
    ({"acts_for_user": "yes"}, "acts_for_user"),
])  # fmt: skip
def test_a_wrong_order_for_a_key_names_its_field(keyed: Keyed, fields: JSON, field: str) -> None:
    before = keyed.owner.get(KEYS).json()
    order = fields if field == "product" else {"product": "acme"} | fields
    refused(keyed.owner.post(KEYS, order), 422, "invalid_argument", field)
    assert keyed.owner.get(KEYS).json() == before


def test_a_body_that_is_no_order_for_a_key_is_refused(keyed: Keyed) -> None:
    refused(keyed.owner.post(KEYS, b"{"), 400, "bad_json")
    refused(keyed.owner.post(KEYS, b"[]"), 422, "invalid_argument")
    refused(keyed.owner.post(KEYS, b" " * 20_000), 413, "too_large")


def test_a_secret_is_shown_once_and_kept_nowhere(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as keyed:
        key = keyed.create("acme", agent="smith", acts_for_user=True)
        keyed.revoke(key["key_id"])
        secret = key["credential"].split("_", 2)[2]
        assert len(secret) == 64
        shown = keyed.owner.get(KEYS)
        assert secret not in shown.text and shown.json()["keys"][0]["agent"] == "smith"
        with keyed.server.brain.ledger.snapshot() as connection:
            recorded = connection.execute(events.select().order_by(events.c.seq)).mappings().all()
        assert [(row["action"], row["key_id"]) for row in recorded] == [
            ("key_create", key["key_id"]), ("key_revoke", key["key_id"]),
        ]  # fmt: skip
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files and not any(secret.encode() in path.read_bytes() for path in files)


def test_with_keys_any_host_is_served_but_mcp_only_by_the_names_that_are_allowed(tmp_path: Path) -> None:
    with keyed_server(tmp_path, server={"allowed_hosts": ["memory.example.com"]}) as keyed:
        named = {"host": "memory.example.com", "content-type": "application/json",
                 "accept": "application/json, text/event-stream"}  # fmt: skip
        refused(keyed.anyone.post("/mcp", MCP_HELLO, headers=named), 403, "forbidden")  # no key yet
        holder = keyed.holder("acme")
        foreign = {"host": "evil.example", "origin": "https://evil.example"}
        assert holder.get("/brain/stats", headers=foreign).status_code == 200
        assert holder.post("/mcp", MCP_HELLO, headers=named).status_code == 200
        assert holder.post("/mcp", MCP_HELLO, headers=named | {"host": "localhost"}).status_code == 200
        assert holder.post("/mcp", MCP_HELLO, headers=named | {"host": "evil.example"}).status_code == 421


def test_beyond_loopback_the_server_listens_only_once_a_key_exists(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data": {"directory": str(tmp_path)}})
    elsewhere = "127.0.0.2"  # of this machine, but none of the loopback names

    def try_out() -> int:
        with app.owning(settings), start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
            serving = app.serving(settings, port=0, host=elsewhere)
            with portal.wrap_async_context_manager(serving) as owner:
                assert elsewhere in owner.url
                return httpx.get(f"{owner.url}/brain/stats", trust_env=False, timeout=60).status_code

    with pytest.raises(SettingsError, match="Make a key first: brain keys create"):
        try_out()
    with keyed_server(tmp_path) as keyed:
        keyed.create("acme")
    assert try_out() == 401
