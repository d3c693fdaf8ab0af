"""Making, listing and revoking keys. Outside the registry: no tool and no key may do this, only the owner's
token over `/internal/keys`, or `brain keys` on a data directory that nobody owns."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models import verbatim
from models.errors import BrainError, TooLarge
from models.keys import RIGHTS, NewKey
from models.scope import Caller
from service.responses import document, problem
from service.validation import validate
from stores.keys import Key, KeyRing

PATH = "/internal/keys"
MAX_BODY = 16 * 1024


def create(ring: KeyRing, arguments: Any, request_id: str) -> dict[str, Any]:
    """A new key with its credential, which is in no later answer. Raises InvalidArgument."""
    key, credential = ring.create(validate(NewKey, arguments), request_id)
    return {**fields(key), "credential": credential}


def listing(ring: KeyRing) -> dict[str, Any]:
    """Every key there ever was, oldest first."""
    return {"keys": [fields(key) for key in ring.list()]}


def revoke(ring: KeyRing, key_id: str, request_id: str) -> dict[str, Any]:
    """The key as it now stands. Raises KeyNotFound."""
    return fields(ring.revoke(key_id, request_id))


def fields(key: Key) -> dict[str, Any]:
    """A key as it is shown: without its secret's digest. Times: epoch ms."""
    return {
        "key_id": key.key_id,
        "product": key.product,
        "agent": key.agent,
        "rights": [right for right in RIGHTS if right in key.rights],
        "authority": key.authority,
        "acts_for_user": key.acts_for_user,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


def routes(ring: KeyRing) -> list[Route]:
    """The internal routes; the gate lets only the owner's token through to them."""

    async def keys(request: Request) -> Response:
        caller: Caller = request.state.caller
        if request.method != "POST":
            return document(listing(ring))
        try:
            arguments = verbatim.parse(await read_body(request))
            made = await asyncio.to_thread(create, ring, arguments, caller.request_id)
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document(made, 201)

    async def key(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            revoked = await asyncio.to_thread(revoke, ring, request.path_params["key_id"], caller.request_id)
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document(revoked)

    return [
        Route(PATH, keys, methods=["GET", "POST"]),
        Route(f"{PATH}/{{key_id:path}}", key, methods=["DELETE"]),
    ]


async def read_body(request: Request) -> bytes:
    """The body of an internal request. Raises TooLarge."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise TooLarge(f"The body is over the limit of {MAX_BODY} bytes.")
    return body
