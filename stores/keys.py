"""API keys: kept in the ledger as digests, held in memory to be looked up on every request."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select, update

from models.authority import Authority
from models.errors import KeyNotFound, Unauthenticated
from models.keys import NewKey
from models.scope import Partition
from stores.ledger import Ledger
from stores.schema import keys
from stores.writer import Transaction

PREFIX = b"brain"
ID_BYTES, SECRET_BYTES = 6, 32

_NO_DIGEST = bytes(32)  # compared with when there is no key, so that an unknown id takes as long
_UNKNOWN = "The credential is not known."


@dataclass(frozen=True, slots=True)
class Key:
    """What a credential stands for. `agent` None: any agent of the product. Times: epoch ms."""

    key_id: str
    product: str
    agent: str | None
    rights: frozenset[str]
    authority: Authority
    acts_for_user: bool
    digest: bytes = field(repr=False)
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class KeyRing:
    """Every key of a ledger. Call `load` once the ledger is open. Changes wait for their commit, so they
    belong in a thread; they raise StoreUnavailable. Keys are never removed: one that was revoked still keeps
    the door from standing open. `new_secret` gives that many random bytes as hex digits."""

    def __init__(self, ledger: Ledger, new_secret: Callable[[int], str] = secrets.token_hex):
        self._ledger = ledger
        self._new_secret = new_secret
        self._keys: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def load(self) -> None:
        """Read every key. Raises StoreUnavailable."""
        with self._ledger.snapshot() as connection:
            rows = connection.execute(select(keys).order_by(keys.c.created_at, keys.c.key_id)).mappings()
            self._keys = {row["key_id"]: _key(dict(row)) for row in rows}

    def authenticate(self, credential: bytes, now: int) -> Key:
        """The key of `brain_<id>_<secret>`, at `now` (epoch ms). Raises Unauthenticated: an unknown id and a
        wrong secret with the same words, and only who has the secret learns that it expired."""
        key = self.find(credential)
        if key is None:
            raise Unauthenticated(_UNKNOWN)
        if key.revoked_at is not None:
            raise Unauthenticated(f"Key {key.key_id} was revoked.")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthenticated(f"Key {key.key_id} has expired.")
        return key

    def find(self, credential: bytes) -> Key | None:
        """The key of which this is the whole credential, whether it is in force or not."""
        prefix, _, rest = credential.partition(b"_")
        key_id, _, secret = rest.partition(b"_")
        key = self._keys.get(key_id.decode("latin-1"))
        same = hmac.compare_digest(hashlib.sha256(secret).digest(), _NO_DIGEST if key is None else key.digest)
        return key if same and prefix == PREFIX else None

    def in_force(self, key: Key, now: int) -> bool:
        """Whether a key that was authenticated earlier still opens the door: neither revoked nor expired."""
        return self._keys.get(key.key_id) is key and (key.expires_at is None or now < key.expires_at)

    def list(self) -> list[Key]:
        """Every key there ever was, oldest first."""
        return list(self._keys.values())

    def create(self, new: NewKey, request_id: str) -> tuple[Key, str]:
        """A new key and its credential, which nobody can show again."""
        key_id, secret = self._new_secret(ID_BYTES), self._new_secret(SECRET_BYTES)
        digest = hashlib.sha256(secret.encode()).digest()

        def write(transaction: Transaction) -> Key:
            now = transaction.now
            key = Key(
                key_id,
                new.product,
                new.agent,
                frozenset(new.rights),
                new.authority,
                new.acts_for_user,
                digest,
                created_at=now,
                expires_at=None if new.expires_in_ms is None else now + new.expires_in_ms,
                revoked_at=None,
            )
            transaction.insert(keys, [_row(key)])
            _record(transaction, "key_create", key, request_id)
            return key

        key: Key = self._ledger.submit(write).result()
        self._keys[key_id] = key
        return key, f"{PREFIX.decode()}_{key_id}_{secret}"

    def revoke(self, key_id: str, request_id: str) -> Key:
        """The key, which opens nothing any more when this returns. Twice is harmless. Raises KeyNotFound."""
        key = self._keys.get(key_id)
        if key is None:
            raise KeyNotFound(f"There is no key {key_id[:64]!r}.")
        if key.revoked_at is not None:
            return key

        def write(transaction: Transaction) -> Key:
            revoked = replace(key, revoked_at=transaction.now)
            transaction.execute(
                update(keys).where(keys.c.key_id == key_id).values(revoked_at=revoked.revoked_at)
            )
            _record(transaction, "key_revoke", key, request_id)
            return revoked

        revoked: Key = self._ledger.submit(write).result()
        self._keys[key_id] = revoked
        return revoked


def _record(transaction: Transaction, action: str, key: Key, request_id: str) -> None:
    # Of the product as a whole: no agent and no user has the empty name.
    whole = Partition(key.product, "", "")
    transaction.event(action, whole, None, key_id=key.key_id, request_id=request_id)


def _row(key: Key) -> dict[str, Any]:
    return {name: getattr(key, name) for name in Key.__slots__} | {"rights": sorted(key.rights)}


def _key(row: dict[str, Any]) -> Key:
    return Key(**(row | {"rights": frozenset(row["rights"])}))
