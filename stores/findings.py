"""What the doctor finds, and what it can do about it."""

from dataclasses import dataclass
from typing import Any, Literal

SHOWN = 20  # ids named of one finding; all of them count

Repair = Literal[
    "delete",
    "analyse",
    "tags",
    "links",
    "facts",
    "conflicts",
    "standings",
    "places",
    "sessions",
    "topics",
    "embed",
    "shard",
    "index",
    "retry",
    "refill",
    "quarantine",
    "evict",
]
HOW: dict[Repair, str] = {
    "delete": "delete these rows: they belong to nothing",
    "analyse": "find the words again in the text",
    "tags": "write them again from the memory's state",
    "links": "write them again from the memories' states",
    "facts": "write them again from what the memories assert",
    "conflicts": "write the links again from the open conflicts",
    "standings": "appraise the memories anew; each gets a version that says so",
    "places": "write their places again, and count their sessions anew",
    "sessions": "count and hash their messages again",
    "topics": "write them again from the memories",
    "embed": "embed the memories again, as soon as a server with the model runs",
    "shard": "send these tasks to the shard of their memories",
    "index": "write these memories to Chroma again, from the ledger",
    "retry": "give these tasks new attempts",
    "refill": "fill the shard anew, from the ledger's vectors",
    "quarantine": "move the directory to quarantine/ and fill the shard anew, from the ledger's vectors",
    "evict": "let the partition leave memory; it is loaded again from the ledger",
}
RESTORE = "the ledger is the only truth, so nothing here can mend it: restore a backup"


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of damage. `check` is the check that found it, `subjects` the ids that it is about, `what` a
    sentence without any memory's text. `repair` is None when the doctor can't mend it; then `move` is what
    the operator does next. `shard` is its number, of Chroma's findings only."""

    check: str
    what: str
    subjects: tuple[str, ...] = ()
    repair: Repair | None = None
    move: str = RESTORE
    shard: int | None = None

    def document(self) -> dict[str, Any]:
        """As it is shown; JSON-ready."""
        return {
            "check": self.check,
            "what": self.what,
            "count": len(self.subjects),
            "subjects": list(self.subjects[:SHOWN]),
            "repairable": self.repair is not None,
            "move": self.move if self.repair is None else HOW[self.repair],
        }
