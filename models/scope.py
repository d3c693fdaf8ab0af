"""Whose memory it is. A scope is (product, agent); a partition is one user's part of a scope."""

from typing import NamedTuple

from models.authority import Authority, rank
from models.errors import AuthorityNotAllowed, FieldError


class Scope(NamedTuple):
    """The tenant: the product comes from the credential, the agent from the credential or a header."""

    product: str
    agent: str


class Partition(NamedTuple):
    """The unit that is held in memory and inside which duplicates and sessions are judged. A tuple, not
    a joined string, so that user `a::b` of agent `c` never meets user `a` of agent `b::c`."""

    product: str
    agent: str
    user: str

    @property
    def scope(self) -> Scope:
        return Scope(self.product, self.agent)


class Caller(NamedTuple):
    """Who asks. Made for every request, and a tuple is made fastest. `user` is None when the request names
    none: it then reads the whole scope and writes to the default user's partition, whose user is the
    product's name. `ceiling` is the highest authority that the caller may claim; `for_user` says that a
    person stands behind the calls; `bound` that the credential is for this agent alone."""

    scope: Scope
    user: str | None
    rights: frozenset[str]
    request_id: str
    key_id: str | None = None
    ceiling: Authority = "policy"
    for_user: bool = False
    bound: bool = False

    def again(self, request_id: str) -> "Caller":
        """The same caller in another request. `_replace` takes three times as long."""
        return Caller(*self[:3], request_id, *self[4:])  # type: ignore[arg-type]

    @property
    def home(self) -> Partition:
        """The partition that this caller writes to."""
        return Partition(*self.scope, self.user if self.user is not None else self.scope.product)

    def reaches(self, partition: Partition) -> bool:
        """Whether a memory of this partition may be shown to the caller at all."""
        return partition[:2] == self.scope and self.user in (None, partition.user)

    def may_change(self, authority: Authority) -> bool:
        """Whether the caller may change a memory of this authority: who may not claim it may not touch it."""
        return rank(authority) <= rank(self.ceiling)

    def check_change(self, authority: Authority) -> None:
        """Raises AuthorityNotAllowed when the caller may not change a memory of this authority."""
        if not self.may_change(authority):
            raise AuthorityNotAllowed(
                f"The memory is '{authority}'; this key may change '{self.ceiling}' at the most."
            )

    def check_authority(self, claimed: Authority) -> None:
        """Raises AuthorityNotAllowed when a write claims more than the caller may."""
        if rank(claimed) > rank(self.ceiling):
            message = f"this key may claim '{self.ceiling}' at the most, not '{claimed}'."
            error = FieldError("source_authority", message)
            raise AuthorityNotAllowed(f"source_authority: {message}", (error,))
