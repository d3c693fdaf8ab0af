"""The rules of the model for what may happen to a memory that is there: change, replace, hide, bring back,
destroy, link."""

from collections.abc import Callable
from typing import Any, Literal

from models.authority import rank
from models.scope import Caller
from tests.state.model import Added, Entry, Link, Model, Refusal, Request

NOT_FOUND = Refusal(404, "memory_not_found")
FORGOTTEN = Refusal(410, "memory_forgotten")
STALE = Refusal(412, "version_conflict")
CONFLICT = Refusal(409, "conflict_state")
STALE_VERSION = 10**6  # of a memory that never had so many
INVALID_ARGUMENT = Refusal(422, "invalid_argument")

Side = Literal["supersedes", "superseded_by"]


class ChangingModel(Model):
    def find(
        self, who: Caller, entry: Entry, expected: int | None = None, *, forgotten: bool = False
    ) -> Refusal | None:
        """Why a caller may not touch an entry, if so."""
        if entry.status == "purged" or not who.reaches(entry.partition):
            return NOT_FOUND
        if entry.status == "forgotten" and not forgotten:
            return FORGOTTEN
        return STALE if expected == STALE_VERSION else None

    def update(self, who: Caller, entry: Entry, change: Request, expected: int | None) -> Entry | Refusal:
        """The entry as it is afterwards, or the one that replaced it."""
        if refusal := self.find(who, entry, expected):
            return refusal
        if entry.status != "active":
            return CONFLICT
        values = {{"metadata": "custom"}.get(name, name): value for name, value in change.items()}
        reframed = values.get("frame", entry.frame) != entry.frame
        if values.pop("content", entry.content) == entry.content:
            if reframed and (entry.supersedes or entry.superseded_by):
                return CONFLICT
            entry.change(**values)
            return entry
        if entry.layer == "l1_raw":
            return Refusal(409, "immutable_layer")
        if reframed:
            return CONFLICT
        new = Entry(
            partition=entry.partition,
            kind=entry.kind,
            layer=entry.layer,
            content=change["content"],
            tags=values.get("tags", entry.tags),
            frame=entry.frame,
            custom=values.get("custom", entry.custom),
            session_id=entry.session_id,
            position=None,
            authority=entry.authority,
            evidence=list(entry.evidence),
            raw=entry.raw,
            reason=entry.reason,
            supersedes=[entry.memory_id],
        )
        self.store(new)
        return new

    def supersede(self, who: Caller, request: Request, olds: list[Entry]) -> Entry | Refusal:
        """The new head. Who replaced the old ones is settled when its id is known."""
        if self._rests_on_nothing(who, request):
            return INVALID_ARGUMENT
        for old in olds:
            if refusal := self.find(who, old):
                return refusal
        new = self.draft(who, request, request.get("kind", "memory"))
        for old in olds:
            if old.partition != new.partition:
                return INVALID_ARGUMENT
            if old.superseded_by or old.status != "active" or old.frame != new.frame:
                return CONFLICT
        higher = [old for old in olds if rank(old.authority) > rank(new.authority)]
        if higher:
            new.status, new.supersedes = "conflicted", []
        stored = self.store(new)
        if not isinstance(stored, Added):
            return stored
        self.lost += [(new, old) for old in higher]
        return new

    def replaced(self, new: Entry) -> None:
        """The old ones learn who replaced them."""
        for id in new.supersedes:
            self.entry(id).change(status="superseded", superseded_by=[new.memory_id])

    def delete(
        self, who: Caller, entry: Entry, mode: str, reason: str | None, revive: bool, expected: int | None
    ) -> list[str] | Refusal:
        """The ids that are current again."""
        if refusal := self.find(who, entry, expected):
            return refusal
        olds = [self.entry(id) for id in entry.supersedes] if revive and not entry.superseded_by else []
        revived = [old for old in olds if old.status == "superseded"]
        for old in revived:
            old.change(status="active", superseded_by=[])
        ids = [old.memory_id for old in revived]
        entry.change(
            status="forgotten" if mode == "forget" else "archived",
            reason=reason,
            supersedes=[id for id in entry.supersedes if id not in ids],
        )
        for old in revived:
            self._rejoin(old)
        return ids

    def restore(self, who: Caller, entry: Entry, reason: str | None, expected: int | None) -> Refusal | None:
        if refusal := self.find(who, entry, expected, forgotten=True):
            return refusal
        won = entry.status == "conflicted" and not self._beaten(entry)
        if entry.status not in ("archived", "forgotten") and not won:
            return CONFLICT
        entry.change(status="superseded" if entry.superseded_by else "active", reason=reason)
        if entry.status == "active":
            self._rejoin(entry)
        return None

    def _beaten(self, entry: Entry) -> bool:
        return any(loser is entry and winner.readable for loser, winner in self.lost)

    def _rejoin(self, entry: Entry) -> None:
        """What has lost before has lost again, and so have those that had lost to it."""
        if self._beaten(entry):
            entry.change(status="conflicted")
            return
        for loser, winner in self.lost:
            if winner is entry and loser.status == "active":
                loser.change(status="conflicted")

    # Links

    def edges(self) -> set[Link]:
        """Every link between two memories that are not purged, but for those that sessions make."""
        links = set(self.links)
        links |= {(loser.memory_id, "conflicts_with", winner.memory_id) for loser, winner in self.lost}
        for entry in self.entries:
            links |= {(id, "evidence_for", entry.memory_id) for id in entry.evidence}
            links |= {(entry.memory_id, "supersedes", id) for id in entry.supersedes}
            links |= {(entry.memory_id, "derived_from", entry.raw)} if entry.raw else set()
        there = {entry.memory_id for entry in self.entries if entry.status != "purged"}
        return {link for link in links if link[0] in there and link[2] in there}

    def link(self, who: Caller, source: Entry, type: str, target: Entry) -> bool | Refusal:
        """Whether it is new."""
        edge = (source.memory_id, type, target.memory_id)
        if refusal := self._apart(who, source, target):
            return refusal
        if edge in self.edges():
            return False
        if type == "derived_from" and rank(target.authority) < rank(source.authority):
            return CONFLICT
        if type == "evidence_for":
            target.change(evidence=[*target.evidence, source.memory_id])
        else:
            self.links.add(edge)
        return True

    def unlink(self, who: Caller, source: Entry, type: str, target: Entry) -> bool | Refusal:
        """Whether it was there."""
        edge = (source.memory_id, type, target.memory_id)
        if refusal := self._apart(who, source, target):
            return refusal
        if edge not in self.edges():
            return False
        if type == "derived_from" and source.raw == target.memory_id:
            return CONFLICT
        if type == "evidence_for":
            target.change(evidence=[id for id in target.evidence if id != source.memory_id])
        self.links.discard(edge)
        return True

    def _apart(self, who: Caller, source: Entry, target: Entry) -> Refusal | None:
        if source is target:
            return INVALID_ARGUMENT
        return self.find(who, source) or self.find(who, target)

    # Purge

    def purge(
        self, who: Caller, wanted: Callable[[Entry], bool], *, cascade: bool, dry: bool
    ) -> tuple[set[str], set[str]]:
        """Ids that go, and those of what rested on them and stays."""
        there = [e for e in self.entries if e.partition.scope == who.scope and e.status != "purged"]
        gone = {entry.memory_id: entry for entry in there if wanted(entry)}
        resting: set[str] = set()
        while more := self._resting_on({*gone, *resting}):
            resting |= more
        if cascade:
            gone |= {id: self.entry(id) for id in resting}
            resting = set()
        if not dry and gone:
            self._bridge(gone)
            self.lost = [pair for pair in self.lost if not any(one.memory_id in gone for one in pair)]
            for entry in gone.values():
                entry.change(status="purged", position=None, content="")
            self.keys = {
                key: known
                for key, known in self.keys.items()
                if key[0].scope != who.scope or not any(id in known.names for id in gone)
            }
        return set(gone), resting

    def _resting_on(self, ids: set[str]) -> set[str]:
        links = self.edges()
        derived = {a for a, type, b in links if type == "derived_from" and b in ids}
        return (derived | {b for a, type, b in links if type == "evidence_for" and a in ids}) - ids

    def _bridge(self, gone: dict[str, Entry]) -> None:
        def across(ids: list[str], side: Side) -> list[str]:
            found: list[str] = []
            for id in ids:
                further: Any = getattr(gone[id], side) if id in gone else None
                found += [id] if further is None else across(further, side)
            return list(dict.fromkeys(found))

        for entry in self.entries:
            if entry.memory_id not in gone and entry.status != "purged":
                entry.change(
                    supersedes=across(entry.supersedes, "supersedes"),
                    superseded_by=across(entry.superseded_by, "superseded_by") or entry.superseded_by,
                )
