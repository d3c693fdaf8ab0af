"""Raw sessions against the contract, written down once more in the plainest way: whatever is added and in
whatever order, a list of sessions is what counting, hashing and sorting all messages anew comes to."""

import hashlib
import random
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tests.raw_sessions import Door, door
from tests.serving import JSON, Server, eventually, server

WRITES, LISTS = 40, 15


class Key(NamedTuple):
    root: str
    host: str | None
    project: str
    session: str

    @property
    def hostless(self) -> tuple[str, str, str]:
        return self.root, self.project, self.session


@dataclass
class Said:
    key: Key
    transcript: str | None
    ordinal: int
    role: str
    text: str
    epoch: int

    @property
    def hashed(self) -> str:
        return f"sha256:content-v1:{hashlib.sha256(self.text.strip().encode()).hexdigest()}"


@dataclass
class Model:
    """All messages in their order, modes by session and by transcript, and what is in doubt."""

    said: list[Said] = field(default_factory=list)
    modes: dict[Any, str] = field(default_factory=lambda: defaultdict(lambda: "unknown"))
    owners: dict[Any, Key] = field(default_factory=dict)  # of transcripts
    doubted: set[Any] = field(default_factory=set)  # sessions and transcripts

    def add(self, key: Key, transcript: str | None, mode: str, messages: list[Said]) -> tuple[int, int, int]:
        """What the answer counts: new, here already, contradictions."""
        name = (key.hostless, transcript)
        if transcript is not None and (clashes := self._clashes(key, name, mode, messages)):
            self.doubted |= {name, self.owners[name]}
            return 0, 0, clashes
        new: list[Said] = []
        for one in messages:
            if not any(self._same(one, other) for other in (*self.said, *new)):
                new.append(one)
        self.said += new
        if mode != "unknown":
            if transcript is not None and self.modes[name] == "unknown":
                self.modes[name] = mode
            if self.modes[key] not in ("unknown", mode):
                self.doubted.add(key)
            elif self.modes[key] == "unknown":
                self.modes[key] = mode
        return len(new), len(messages) - len(new), 0

    def _clashes(self, key: Key, name: Any, mode: str, messages: list[Said]) -> int:
        owner = self.owners.setdefault(name, key)
        if name in self.doubted or owner != key or {self.modes[name], mode} == {"interactive", "unattended"}:
            return len(messages)
        known = {one.ordinal: one for one in self.said if (one.key.hostless, one.transcript) == name}
        return sum(one.ordinal in known and known[one.ordinal] != one for one in messages)

    @staticmethod
    def _same(one: Said, other: Said) -> bool:
        if (one.key, one.transcript) != (other.key, other.transcript):
            return False
        if one.transcript is not None:
            return one.ordinal == other.ordinal
        return (one.role, one.hashed) == (other.role, other.hashed)

    def listing(
        self, identities: list[int], since: int | None, until: int | None, latest: int | None, sample: int
    ) -> JSON:
        groups: dict[Key, list[int]] = defaultdict(list)
        for place, one in enumerate(self.said):
            groups[one.key].append(place)
        hostless = {key.hostless for key in groups if key.host is None}
        sound, excluded, rows = [], set(), 0
        for key, places in groups.items():
            epochs = [self.said[place].epoch for place in places]
            if not any((since or 0) <= at <= (until if until is not None else at) for at in epochs):
                continue
            if key.host is None or key.hostless in hostless or key in self.doubted:
                rows += len(places)
                excluded.add((*key.hostless, (key.host or "") if key in self.doubted else ""))
            else:
                sound.append(key)
        sound.sort(key=lambda key: (min(self.said[place].epoch for place in groups[key]), key))
        if latest is not None:
            sound.sort(key=lambda key: (-max(self.said[place].epoch for place in groups[key]), key))
        return {
            "excluded": (rows, [(*names, host or None) for *names, host in sorted(excluded)]),
            "sessions": [self._session(key, groups[key], identities, sample) for key in sound[:latest]],
        }

    def _session(self, key: Key, places: list[int], identities: list[int], sample: int) -> JSON:
        these = sorted(places, key=lambda place: (self.said[place].epoch, place))
        said = [self.said[place] for place in these]
        hashed = hashlib.sha256()
        names = ("brain-raw-session-content-v1", *(part or "" for part in key))
        fields: list[str | int] = [*names]
        for place, one in zip(these, said, strict=True):
            fields += [identities[place], one.ordinal, one.role, one.hashed, one.epoch]
        for value in fields:
            data = struct.pack("<q", value) if isinstance(value, int) else value.encode()
            hashed.update(struct.pack("<Q", len(data)) + data)
        of_user = [one.text[:200] for one in said if one.role == "user"]
        return {
            "key": key,
            "span": (said[0].epoch, said[-1].epoch),
            "counts": (len(said), len(of_user), sum(one.role == "assistant" for one in said)),
            "content_hash": f"sha256:{hashed.hexdigest()}",
            "user_message_samples": of_user[:sample],
            "session_mode": self.modes[key],
        }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("laws")) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.mark.parametrize("seed", range(3))
def test_a_list_is_what_counting_everything_anew_comes_to(running: Server, seed: int) -> None:
    caller, chance, model = door(running, by_mcp=False), random.Random(seed), Model()
    for _ in range(WRITES):
        _write(caller, chance, model)
    identities = _identities(caller)
    assert len(identities) == len(model.said) > WRITES / 2
    for _ in range(LISTS):
        since, until = (chance.choice([None, chance.randrange(300)]) for _ in range(2))
        latest, sample = chance.choice([None, None, 1, 3, 99]), chance.choice([0, 2, 99])
        asked = {"since": since, "until": until, "latest": latest, "sample": sample}
        given = {name: str(value) for name, value in asked.items() if value is not None}
        listing = caller.listing(**given)
        assert _shown(listing) == model.listing(identities, since, until, latest, sample), given


def _write(caller: Door, chance: random.Random, model: Model) -> None:
    """Add some messages, and mostly of the kind that do not contradict others."""
    host = chance.choices(["codex-cli", "claude-code", None], [12, 5, 1])[0]
    key = Key(chance.choice(["local", "b"]), host, "/repo", f"s{chance.randrange(7)}")
    transcript = chance.choice([None, None, "t1", "t2"])
    mode = chance.choices(["unknown", "interactive", "unattended"], [10, 2, 1])[0]
    first, odd = chance.randrange(5), chance.random() < 0.08
    messages = []
    for ordinal in range(first, first + chance.randrange(1, 4)):
        if transcript is None:
            role = chance.choice(["user", "assistant", "tool"])
            text = chance.choice([f" padded {chance.randrange(5)} ", "y" * 250, f"\u4f60\u597d {ordinal}"])
            messages.append(Said(key, None, 0, role, text, chance.randrange(300)))
        else:
            role, text = ("user", "assistant")[ordinal % 2], f"Line {ordinal}{' changed' if odd else ''}"
            messages.append(Said(key, transcript, ordinal, role, text, 40 * ordinal))
    given = [{"role": one.role, "content": one.text, "created_at": one.epoch} for one in messages]
    if transcript is not None:
        given = [{**one, "ordinal": first + place} for place, one in enumerate(given)]
    names = {"host": host, "source_root": key.root, "project": key.project, "session_id": key.session}
    more = {"session_mode": mode} | ({} if transcript is None else {"transcript_id": transcript})
    answer = caller.ask("add_raw_messages", messages=given, **names, **more)
    counted = answer["inserted"], answer["duplicates"], answer["conflicts"]
    assert counted == model.add(key, transcript, mode, messages)


def _identities(caller: Door) -> list[int]:
    """Of each message the number that the ledger gave its transcript, which goes into the hash."""
    path = caller.running.brain.settings.data_directory / "ledger.sqlite3"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    query = "SELECT identity_id FROM raw_messages WHERE agent = ? ORDER BY number"
    found = [row[0] for row in connection.execute(query, (caller.agent,))]
    connection.close()
    return found


def _shown(listing: JSON) -> JSON:
    names = ("source_root", "project", "session_id", "host")
    excluded = [tuple(one[name] for name in names) for one in listing["excluded_legacy_identities"]]
    assert listing["excluded_legacy_sessions"] == len({one[:3] for one in excluded})
    assert listing["count"] == len(listing["sessions"])
    kept = ("content_hash", "user_message_samples", "session_mode")
    counts = ("message_count", "user_message_count", "assistant_message_count")
    return {
        "excluded": (listing["excluded_legacy_rows"], excluded),
        "sessions": [
            {
                "key": Key(one["source_root"], one["host"], one["project"], one["session_id"]),
                "span": (one["first_epoch"], one["last_epoch"]),
                "counts": tuple(one[name] for name in counts),
                **{name: one[name] for name in kept},
            }
            for one in listing["sessions"]
        ],
    }
