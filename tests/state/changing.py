"""What happens to memories in the state machine after they were written."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from models.scope import Caller
from tests.state import requests
from tests.state.brains import caller
from tests.state.looking import Looking
from tests.state.model import Entry, Refusal, Request
from tests.state.model_changes import STALE_VERSION

places = st.integers(0, 12)  # which entry, from the newest
asking = st.sampled_from(["owner", "owner", "owner", "everyone", "somebody else"])
versions = st.sampled_from(["none", "right", "stale"])
reasons = st.none() | st.sampled_from(["because", "no more"])
some_entries = precondition(lambda self: self.model.entries)


class Changing(Looking):
    def pick(self, place: int) -> Entry:
        entries = self.model.entries
        return entries[-1 - place % len(entries)]

    def who(self, entry: Entry, asking: str) -> Caller:
        users = {
            "owner": entry.partition.user,
            "everyone": None,
            "somebody else": "v" if entry.partition.user == "u" else "u",
        }
        return caller(users[asking], entry.partition.agent)

    def expect(self, entry: Entry, version: str) -> dict[str, int]:
        if version == "none":
            return {}
        stored = self.brain.ledger.find(entry.memory_id)
        assert stored is not None
        return {"expected_version": STALE_VERSION if version == "stale" else stored.version}

    @some_entries
    @rule(place=places, asking=asking, change=requests.changes, version=versions)
    def update(self, place: int, asking: str, change: Request, version: str) -> None:
        entry, expected = self.pick(place), self.expect(self.pick(place), version)
        who = self.who(entry, asking)
        outcome = self.model.update(who, entry, change, expected.get("expected_version"))
        body = self.agree(
            outcome, "brain_memory_update", who, memory_id=entry.memory_id, **change, **expected
        )
        if body is None:
            return
        assert isinstance(outcome, Entry)
        self.took(outcome, body["memory"]["memory_id"])
        assert body["superseded"] == ([entry.memory_id] if outcome is not entry else [])

    @some_entries
    @rule(
        request=requests.successors,
        places=st.lists(places, min_size=1, max_size=3),
        evidence=st.lists(places, max_size=1),
        asking=asking,
        by=st.sampled_from(["brain_memory_supersede", "brain_memory_add"]),
    )
    def supersede(
        self, request: Request, places: list[int], evidence: list[int], asking: str, by: str
    ) -> None:
        olds = list({id(old): old for old in map(self.pick, places)}.values())
        who = self.who(olds[0], asking)
        reason = {"reason": "newer"} if by == "brain_memory_supersede" else {}
        named = [old.memory_id for old in olds]
        asked = request | reason | {"supersedes": [*named, named[0]]}  # twice is once
        asked |= {"evidence_ids": [self.pick(place).memory_id for place in evidence]}
        outcome = self.model.supersede(who, asked, olds)
        body = self.agree(outcome, by, who, **asked)
        if body is not None:
            assert isinstance(outcome, Entry) and body["superseded"] == outcome.supersedes
            assert outcome.status == "active" or body["conflicts"]
            self.took(outcome, body["memory"]["memory_id"])

    def took(self, entry: Entry, memory_id: str) -> None:
        """Take over the id of what may be a new entry, which stands above those that it replaced."""
        assert entry.memory_id in ("", memory_id)
        if not entry.memory_id:
            self.model.named(entry, memory_id)
            self.model.replaced(entry)

    @some_entries
    @rule(
        place=places,
        asking=asking,
        mode=st.sampled_from(["forget", "archive"]),
        reason=reasons,
        revive=st.booleans(),
        version=versions,
    )
    def delete(
        self, place: int, asking: str, mode: str, reason: str | None, revive: bool, version: str
    ) -> None:
        entry, expected = self.pick(place), self.expect(self.pick(place), version)
        who = self.who(entry, asking)
        outcome = self.model.delete(who, entry, mode, reason, revive, expected.get("expected_version"))
        arguments = {"memory_id": entry.memory_id, "mode": mode, "revive": revive, "reason": reason}
        body = self.agree(outcome, "brain_memory_delete", who, **arguments, **expected)
        if body is not None:
            assert (body["revived"], body["status"]) == (outcome, entry.status)

    @some_entries
    @rule(place=places, asking=asking, reason=reasons, version=versions)
    def restore(self, place: int, asking: str, reason: str | None, version: str) -> None:
        away = ("archived", "forgotten", "conflicted")
        hidden = [entry for entry in self.model.entries if entry.status in away]
        entry = hidden[place % len(hidden)] if hidden and place else self.pick(place)
        expected, who = self.expect(entry, version), self.who(entry, asking)
        outcome = self.model.restore(who, entry, reason, expected.get("expected_version"))
        arguments = {"memory_id": entry.memory_id, "reason": reason}
        body = self.agree(outcome, "brain_memory_restore", who, **arguments, **expected)
        assert body is None or body["memory"]["status"] == entry.status

    @some_entries
    @rule(
        places=st.tuples(places, places),
        type=st.sampled_from(["related", "explains", "evidence_for", "derived_from"]),
        asking=asking,
        away=st.booleans(),
    )
    def link(self, places: tuple[int, int], type: str, asking: str, away: bool) -> None:
        one, other = map(self.pick, places)
        who = self.who(one, asking)
        if away:
            outcome, name, told = self.model.unlink(who, one, type, other), "brain_memory_unlink", "removed"
        else:
            outcome, name, told = self.model.link(who, one, type, other), "brain_memory_link", "created"
        ends = {"from_id": one.memory_id, "type": type, "to_id": other.memory_id}
        body = self.agree(outcome, name, who, **ends)
        assert body is None or body[told] == outcome

    @some_entries
    @rule(
        place=places,
        what=st.sampled_from(["memory_id", "memory_id", "memory_id", "session_id", "user_id", "all"]),
        asking=asking,
        cascade=st.booleans(),
        dry=st.sampled_from([False, False, True]),
        wait=st.booleans(),
    )
    def purge(self, place: int, what: str, asking: str, cascade: bool, dry: bool, wait: bool) -> None:
        entry = self.pick(place)
        who = self.who(entry, asking)
        session = entry.session_id or "s"
        target: dict[str, Any] = {
            "memory_id": {"memory_id": entry.memory_id},
            "session_id": {"session_id": session},
            "user_id": {"user_id": entry.partition.user},
            "all": {"all": True, "confirm": who.scope.agent},
        }[what]

        def wanted(other: Entry) -> bool:
            user = entry.partition.user if what == "user_id" else who.user
            return (
                user in (None, other.partition.user)
                and (what != "memory_id" or other is entry)
                and (what != "session_id" or other.session_id == session)
            )

        refusal = self.model.find(who, entry, forgotten=True) if what == "memory_id" else None
        if what == "user_id" and asking == "somebody else":
            refusal = Refusal(422, "invalid_argument")
        outcome = refusal or self.model.purge(who, wanted, cascade=cascade, dry=dry)
        self.clock.ms += 1  # so that what is due for review now differs from what was
        if wait:
            self.heal()
            self.load.set()
        answer = self.agree(outcome, "brain_purge", who, **target, cascade=cascade, dry_run=dry, wait=wait)
        if answer is not None:
            gone, review = outcome  # type: ignore[misc]
            assert (set(answer["purged"]), answer["count"]) == (gone, len(gone))
            assert set(answer["review"]) == review
            assert not wait or set(answer["done"].values()) == {"done"}
