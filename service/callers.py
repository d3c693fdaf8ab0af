"""Who calls: from the headers of a request to its `Caller`. Three sorts:

no key exists      this machine only, by its loopback names: product `default`, all rights
a key              its product, its agent where it is bound to one, its rights, its ceiling
the owner's token  a process of this user on this machine: all rights, product by X-Brain-Product
"""

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from models.errors import Forbidden, RateLimited, Unauthenticated, invalid
from models.keys import RIGHTS
from models.scope import Caller, Partition
from models.scope import Scope as Tenant
from service.rate import RateLimit
from service.refusals import NOBODY, Origin
from stores.keys import Key, KeyRing

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # they show nothing of any tenant
INTERNAL = "/internal/"
ALL_RIGHTS = frozenset(RIGHTS)
PRODUCT = "default"
AGENT = "default"

_OF_PROXIES = (b"forwarded", b"x-forwarded-for", b"via")
_NAME = re.compile(rb"[\x20-\x7e]{1,128}")

SEEN = 4_096  # how many combinations of key, agent and user are remembered

Headers = Mapping[bytes, bytes]
_Headers = tuple[bytes | None, bytes | None, bytes | None, bytes | None]


class Callers:
    """Knows them. `token` is what the owner of the data directory published for other processes of its user;
    `hosts` are the names, besides the loopback ones, that `/mcp` may be called by; `clock` gives epoch ms."""

    def __init__(
        self,
        keys: KeyRing,
        token: str,
        clock: Callable[[], int],
        *,
        rate: RateLimit | None = None,
        hosts: Collection[str] = (),
    ):
        self._keys = keys
        self._token = token.encode()
        self._clock = clock
        self._rate = rate
        self._hosts = frozenset(hosts)
        self._seen: dict[_Headers, tuple[Key, Caller]] = {}

    def identify(self, request: Mapping[str, Any], headers: Headers, request_id: str) -> Caller:
        """The caller of an ASGI request. Raises Unauthenticated, Forbidden, InvalidArgument, RateLimited."""
        path: str = request["path"]
        now = self._clock()
        caller = self._seen_before(headers, now, request_id)
        if caller is None:
            authorization = headers.get(b"authorization")
            if authorization is not None and self._is_owner(authorization, request, headers):
                return _owner(headers, request_id)
            caller = self._newcomer(path, authorization, headers, now, request_id)
        if path.startswith(INTERNAL):
            raise Forbidden(f"{INTERNAL}… is for the owner's token: use `brain keys`.")
        if path == "/metrics" and "admin" not in caller.rights:
            raise Forbidden("/metrics needs the right 'admin'.")
        if self._rate is not None and path not in OPEN:
            wait = self._rate.take(caller.key_id, now)
            if wait:
                raise RateLimited(f"Too many requests; wait {wait} s.", retry_after=wait)
        return caller

    def origin(self, headers: Headers) -> Origin:
        """Whom the refusal of such a request is about: the holder of a key, in force or not, or nobody."""
        key = self._keys.find(headers.get(b"authorization", b"").partition(b" ")[2].strip())
        if key is None:
            return Origin(NOBODY, None)
        return Origin(Partition(key.product, key.agent or "", ""), key.key_id)

    def _seen_before(self, headers: Headers, now: int, request_id: str) -> Caller | None:
        """The caller by the same headers as in an earlier request, while the key is in force."""
        found = self._seen.get(_naming(headers))
        if found is None or not self._keys.in_force(found[0], now):
            return None
        return found[1].again(request_id)

    def _is_owner(self, authorization: bytes, request: Mapping[str, Any], headers: Headers) -> bool:
        return secrets.compare_digest(_bearer(authorization), self._token) and _is_local(request, headers)

    def _newcomer(
        self, path: str, authorization: bytes | None, headers: Headers, now: int, request_id: str
    ) -> Caller:
        keyless = not self._keys
        # On /mcp the SDK refuses it, in the protocol's own way; other names are for the time with keys.
        if keyless and (path != "/mcp" or self._hosts):
            _refuse_foreign(headers)
        if authorization is None:
            if not keyless and path not in OPEN:
                raise Unauthenticated("No credential was sent.")
            return _anyone(headers, request_id, ALL_RIGHTS if keyless else frozenset())
        if keyless:
            raise Unauthenticated("The credential is not known. No key exists yet: leave Authorization out.")
        key = self._keys.authenticate(_bearer(authorization), now)
        caller = _holder(key, headers, request_id)
        if len(self._seen) >= SEEN:
            self._seen.clear()
        self._seen[_naming(headers)] = key, caller
        return caller


def _naming(headers: Headers) -> _Headers:
    """The headers that say who calls."""
    return (
        headers.get(b"authorization"),
        headers.get(b"x-brain-agent"),
        headers.get(b"x-brain-user"),
        headers.get(b"x-brain-product"),
    )


def _anyone(headers: Headers, request_id: str, rights: frozenset[str]) -> Caller:
    _refuse_product(headers)
    agent = _name(headers, b"x-brain-agent") or AGENT
    return Caller(
        Tenant(PRODUCT, agent), _name(headers, b"x-brain-user"), rights, request_id, for_user=bool(rights)
    )


def _holder(key: Key, headers: Headers, request_id: str) -> Caller:
    _refuse_product(headers)
    agent = _name(headers, b"x-brain-agent")
    if key.agent is not None and agent not in (None, key.agent):
        raise Forbidden(f"X-Brain-Agent: key {key.key_id} is bound to another agent.")
    return Caller(
        Tenant(key.product, key.agent or agent or AGENT),
        _name(headers, b"x-brain-user"),
        key.rights,
        request_id,
        key.key_id,
        key.authority,
        key.acts_for_user,
        bound=key.agent is not None,
    )


def _owner(headers: Headers, request_id: str) -> Caller:
    product = _name(headers, b"x-brain-product") or PRODUCT
    agent = _name(headers, b"x-brain-agent") or AGENT
    user = _name(headers, b"x-brain-user")
    return Caller(Tenant(product, agent), user, ALL_RIGHTS, request_id, for_user=True)


def _bearer(authorization: bytes) -> bytes:
    scheme, _, credential = authorization.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated("The Authorization header is not a Bearer credential.")
    return credential.strip()


def _is_local(request: Mapping[str, Any], headers: Headers) -> bool:
    """Whether the request came from this machine, and not through a proxy on it: the token never counts for
    others."""
    if any(name in headers for name in _OF_PROXIES):
        return False
    client, server = request.get("client") or ("",), request.get("server") or ("",)
    return client[0] in LOOPBACK or (client[0] != "" and client[0] == server[0])


def _refuse_product(headers: Headers) -> None:
    if b"x-brain-product" in headers:
        raise Forbidden("X-Brain-Product goes with the owner's token only: the product comes from the key.")


def _refuse_foreign(headers: Headers) -> None:
    host = headers.get(b"host", b"").decode("latin-1")
    if _hostname(f"//{host}") not in LOOPBACK:
        raise Forbidden(f"Without keys, only this machine is served; the Host is {host[:100]!r}.")
    origin = headers.get(b"origin")
    if origin is not None and _hostname(origin.decode("latin-1")) not in LOOPBACK:
        raise Forbidden("Without keys, web pages of other sites are not served.")


@lru_cache(maxsize=256)
def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _name(headers: Headers, header: bytes) -> str | None:
    value = headers.get(header)
    if value is None:
        return None
    if not _NAME.fullmatch(value):
        raise invalid(header.decode().title(), "must be 1 to 128 printable ASCII characters")
    return value.decode()
