"""A writing request with an idempotency key runs once: its outcome is kept for seven days."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import delete, select

from models.draft import request_digest
from models.errors import IdempotencyKeyReused
from models.scope import Caller
from stores.schema import idempotency
from stores.writer import Transaction

T = TypeVar("T")

KEY_LIFETIME_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key with the request that it stands for."""

    operation: str
    key: str
    request: dict[str, Any]

    def run(self, transaction: Transaction, caller: Caller, act: Callable[[], T]) -> tuple[T, bool]:
        """The outcome of the act, which is run the first time only, and whether it was replayed. It must
        be a JSON value without text."""
        before = self.recall(transaction, caller)
        if before is not None:
            return before, True
        outcome = act()
        self.keep(transaction, caller, outcome)
        return outcome, False

    def recall(self, transaction: Transaction, caller: Caller) -> Any:
        """The outcome of an earlier run, or None. Raises IdempotencyKeyReused for another request."""
        row = transaction.execute(
            select(idempotency.c.salt, idempotency.c.digest, idempotency.c.outcome).where(
                *self._where(caller), idempotency.c.at >= transaction.now - KEY_LIFETIME_MS
            )
        ).first()
        if row is None:
            return None
        if request_digest(row.salt, self.request) != row.digest:
            raise IdempotencyKeyReused(
                f"idempotency_key was first used with another body of {self.operation}."
            )
        return row.outcome

    def keep(self, transaction: Transaction, caller: Caller, outcome: Any) -> None:
        """Remember the outcome, and let those go that are past their lifetime."""
        past = idempotency.c.at < transaction.now - KEY_LIFETIME_MS
        transaction.execute(delete(idempotency).where(past))
        salt = os.urandom(16)
        product, agent, user = caller.home
        row = {
            "product": product,
            "agent": agent,
            "user": user,
            "operation": self.operation,
            "key": self.key,
            "salt": salt,
            "digest": request_digest(salt, self.request),
            "outcome": outcome,
            "at": transaction.now,
        }
        transaction.insert(idempotency, [row])

    def _where(self, caller: Caller) -> tuple[Any, ...]:
        product, agent, user = caller.home
        table = idempotency.c
        return (
            table.product == product,
            table.agent == agent,
            table.user == user,
            table.operation == self.operation,
            table.key == self.key,
        )
