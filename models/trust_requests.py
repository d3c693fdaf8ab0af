"""What may be asked about trust: conflicts, their resolution, feedback."""

from typing import Annotated

from pydantic import Field

from models.change_requests import ExpectedVersion, Key, Reason
from models.requests import MemoryId, Request
from models.standing import Verdict

ConflictId = Annotated[str, Field(min_length=1, max_length=64)]


class ListConflicts(Request):
    limit: Annotated[int, Field(ge=1, le=100, description="How many on a page at the most.")] = 20
    cursor: Annotated[
        str | None, Field(max_length=512, description="`next_cursor` of the page before; opaque.")
    ] = None


class ResolveConflict(Request):
    conflict_id: Annotated[ConflictId, Field(description="The open conflict, as brain_conflicts names it.")]
    adopted: Annotated[
        MemoryId | None,
        Field(description="The side that is to be current; null: both stand as they are."),
    ]
    reason: Reason = None
    idempotency_key: Key = None


class GiveFeedback(Request):
    memory_id: Annotated[MemoryId, Field(description="The memory that it is about.")]
    verdict: Annotated[
        Verdict,
        Field(
            description="`confirmed`: it was checked and holds; `useful`: it helped; "
            "`outdated`: it did hold once; `wrong`: it never held."
        ),
    ]
    note: Reason = None
    expected_version: ExpectedVersion = None
    idempotency_key: Key = None
