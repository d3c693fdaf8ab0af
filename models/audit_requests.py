"""What may be asked of the audit log."""

from typing import Annotated

from pydantic import Field

from models.requests import EpochMs, Label, MemoryId, Request


class GetAudit(Request):
    memory_id: Annotated[
        MemoryId | None, Field(description="Only what was done to this memory, or tried.")
    ] = None
    action: Annotated[
        Label | None,
        Field(description='Only this operation, e.g. "brain_memory_delete"; also `expire`, `import`.'),
    ] = None
    key_id: Annotated[Label | None, Field(description="Only what this key did, or tried.")] = None
    refused: Annotated[
        bool | None, Field(description="True: only refusals; false: only what was done; default: both.")
    ] = None
    since: Annotated[EpochMs | None, Field(description="From this time on, epoch ms.")] = None
    until: Annotated[EpochMs | None, Field(description="Up to this time, epoch ms.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many entries at the most.")] = 50
    cursor: Annotated[
        str | None,
        Field(max_length=256, description="`next_cursor` of the page before, with the same filters."),
    ] = None
