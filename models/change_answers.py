"""What is answered by the operations that change memories."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import MemoryFields, Timed
from models.layers import Status

_closed = with_config(ConfigDict(extra="forbid"))
_Replayed = Annotated[bool, Field(description="True on a repeat with the same idempotency key")]


@_closed
class UpdateAnswer(Timed):
    memory: Annotated[MemoryFields, Field(description="As it now stands; a new one for new content")]
    superseded: Annotated[list[str], Field(description="Ids that it replaced")]
    conflicts: Annotated[list[str], Field(description="Ids of the conflicts that it opened")]
    replayed: NotRequired[_Replayed]


@_closed
class SupersedeAnswer(UpdateAnswer):
    indexed: Annotated[bool, Field(description="True when search by meaning finds it now; words always do")]


@_closed
class DeleteAnswer(Timed):
    memory_id: Annotated[str, Field(description="The memory that is gone")]
    status: Annotated[Status, Field(description="forgotten or archived")]
    version: Annotated[int, Field(description="The version that the deletion made")]
    revived: Annotated[list[str], Field(description="Ids that are current again")]
    replayed: NotRequired[_Replayed]


@_closed
class RestoreAnswer(Timed):
    memory: Annotated[MemoryFields, Field(description="The memory as it now stands: active, or superseded")]
    replayed: NotRequired[_Replayed]


@_closed
class Done(TypedDict):
    """What is out of which files. `pending` parts are finished in the background."""

    ledger: Annotated[str, Field(pattern="^(done|pending)$", description="Rows, links, words, vectors")]
    wal: Annotated[str, Field(pattern="^(done|pending)$", description="The write-ahead log")]
    vdb: Annotated[str, Field(pattern="^(done|pending)$", description="The vector store's files")]


@_closed
class PurgeAnswer(Timed):
    purged: Annotated[list[str], Field(description="Ids that are gone, at most 1,000 of them")]
    count: Annotated[int, Field(description="How many are gone (with dry_run: would go)")]
    review: Annotated[list[str], Field(description="Ids that rested on them, now due for review")]
    dry_run: Annotated[bool, Field(description="True when nothing was done")]
    done: Done
    backups: Annotated[str, Field(description="What no purge can reach")]
