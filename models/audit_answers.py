"""What is answered about the audit log. See `models.answers`."""

from typing import Annotated

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import Timed

_closed = with_config(ConfigDict(extra="forbid"))


@_closed
class AuditEntry(TypedDict):
    seq: Annotated[int, Field(description="The entry's place in the order of all entries of the store")]
    at: Annotated[int, Field(description="Epoch ms")]
    agent_id: Annotated[
        str, Field(description="Empty when it concerns the product as a whole: its keys, counted refusals")
    ]
    user_id: str
    action: Annotated[
        str,
        Field(description="The operation, or `expire`, `import`, `key_create`, …; `request`: at the door"),
    ]
    memory_id: Annotated[
        str | None, Field(description="The memory it was about; of a refusal, the one that was named")
    ]
    key_id: Annotated[
        str | None, Field(description="The key that was used; `system`: the service itself; null: no key")
    ]
    request_id: str | None
    refused: Annotated[str | None, Field(description="The code of the refusal; null when it was done")]
    reason: Annotated[str | None, Field(description="The caller's reason; gone with a purge")]
    fields: Annotated[
        list[str], Field(description="Names of the fields that were touched; `count=…` of refusals together")
    ]
    count: Annotated[int, Field(description="How many refusals it stands for, of the minute before; else 1")]
    digest: Annotated[
        str | None, Field(description="SHA-256 of a secret salt, the reason and the fields' new values")
    ]
    hash: Annotated[str | None, Field(description="The entry's link: SHA-256 of `previous` and the entry")]
    previous: Annotated[str, Field(description="The link of the entry before, of whatever scope")]


@_closed
class AuditAnswer(Timed):
    entries: Annotated[list[AuditEntry], Field(description="The newest first")]
    next_cursor: Annotated[str | None, Field(description="Where the next page begins; null at the end")]
    verified: Annotated[
        bool, Field(description="Whether each entry shown still has the hash that it was given")
    ]
