"""What somebody might try against the history view: to make a source out of a label, to have an injected text
pinned, to edit a tombstone, to read another frame, to act above one's authority."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME
from tests.historic import INJECTED, Door, history_server, over_http
from tests.keyed import Clock, Keyed, keyed_server
from tests.serving import Server, fresh, refused, server, succeeded

DAY = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("attacks")
    with history_server(directory, clock=clock) as running:
        yield running


@pytest.fixture
def door(running: Server) -> Door:
    api = running.api.of(fresh("attack"))
    return Door(api, over_http(api))


# Labels


def test_a_source_that_is_named_away_does_not_corroborate_what_came_from_it(door: Door) -> None:
    memory = door.sensitive(source="mail", origin_id="memo-1")
    door.ask("set_history_context", id=memory["id"], source="press", origin_id="memo-2")
    door.ask("set_history_context", id=memory["id"], source=None, origin_id=None)
    for label in ("Mail", "memo-1", "press/", "MEMO-2"):
        assert door.corroborations(memory["id"], source=label) == 0, label
    assert door.corroborations(memory["id"], source="mail", origin_id="Memo-2 ") == 0
    assert door.corroborations(memory["id"], source="radio") == 0, "unknown: it may be its own"
    assert door.corroborations(memory["id"], source="paper") == 1


def test_many_labels_of_one_original_are_one_source(door: Door) -> None:
    memory = door.remember("Rain on Friday.", source="radio")
    for number in range(5):
        assert door.corroborations(memory["id"], source=f"blog {number}", origin_id="wire-9") == 1
    assert door.corroborations(memory["id"], source="wire-9") == 1, "whoever cites the original itself"
    counted = [one["counted"] for one in door.ask("provenance", id=memory["id"])["corroborations"]]
    assert sum(counted) == 1 and len(counted) == 6


def test_a_memory_does_not_corroborate_itself_or_through_its_copy(door: Door) -> None:
    memory = door.sensitive(source="mail")
    door.refuse(422, "invalid_argument", "corroborate", "memory_id", id=memory["id"], memory_id=memory["id"])
    copy = door.sensitive(source="MAIL ")
    nobody = door.sensitive()
    for other in (copy, nobody):
        assert door.corroborations(memory["id"], memory_id=other["id"]) == 0
    why = {one["memory_id"]: one["why"] for one in door.ask("provenance", id=memory["id"])["corroborations"]}
    assert why == {copy["id"]: "own_source", nobody["id"]: "unknown_source"}
    for wrong in ({}, {"source": "a", "memory_id": copy["id"]}, {"source": " \u200b"}, {"source": "//"}):
        door.refuse(422, "invalid_argument", "corroborate", "source", id=memory["id"], **wrong)
    given = {"id": memory["id"], "memory_id": copy["id"], "origin_id": "x"}
    door.refuse(422, "invalid_argument", "corroborate", "origin_id", **given)


# Promotion of injected text


def test_a_pinned_memory_cant_be_rewritten_into_an_order(door: Door) -> None:
    witness = door.remember("The user prefers tea, Ana says.", source="Ana")
    anchor = door.anchor("The user prefers tea.", source="chat")
    door.ask("corroborate", id=anchor, memory_id=witness["id"])
    door.ask("corroborate", id=anchor, source="diary")
    made = succeeded(door.api.request("PATCH", f"/brain/memory/{anchor}", {"content": INJECTED}))
    new = made["memory"]["memory_id"]
    details = door.details(new)
    assert (details["security_sensitive"], details["pinned"], details["stage"]) == (True, False, "working")
    assert (details["tier"], details["evidence_ids"]) == ("archive", [])
    assert door.ask("recall", query="tea")["anchors"] == []
    for tool in ("promote", "pin"):
        status = {"promote": (403, "corroboration_required"), "pin": (409, "conflict_state")}[tool]
        door.refuse(*status, tool, id=new, reason="It says so.")
    plain = door.anchor("The user lives in Rome.")
    harmless = succeeded(
        door.api.request("PATCH", f"/brain/memory/{plain}", {"content": "He lives in Oslo."})
    )
    assert door.details(harmless["memory"]["memory_id"])["pinned"] is True, "an anchor moves to its new text"


def test_no_other_door_opens_the_gate(door: Door) -> None:
    memory_id = door.remember(INJECTED, source="mail")["id"]
    copy = door.remember(INJECTED, source="mail")["id"]
    for verdict in ("useful", "confirmed"):
        door.api.post(f"/brain/memory/{memory_id}/feedback", {"verdict": verdict})
    door.api.request("PUT", f"/brain/links/{copy}/evidence_for/{memory_id}", {})
    door.api.add(INJECTED, tags=["merged"])
    door.api.request(
        "PATCH", f"/brain/memory/{memory_id}", {"tags": ["pinned"], "metadata": {"pinned": True}}
    )
    door.ask("set_frame", id=memory_id, frame="admins")
    door.refuse(403, "corroboration_required", "promote", id=memory_id, reason="x")
    for name in ("source", "capture_context"):
        marked = door.remember("Tea at five.", **{name: INJECTED})
        assert marked["security_sensitive"] is True, name


def test_a_pin_falls_with_what_supports_it(door: Door) -> None:
    def supported() -> tuple[str, str]:
        memory = door.sensitive(source="mail")["id"]
        witness = door.remember("Bob has the keys, Ana says.", source="Ana")["id"]
        door.ask("corroborate", id=memory, memory_id=witness)
        door.ask("promote", id=memory, reason="Two say so.")
        door.ask("pin", id=memory, reason="Two say so.")
        return memory, witness

    memory, witness = supported()
    assert door.ask("retract_corroboration", id=memory, memory_id=witness)["unpinned"] is True
    memory, witness = supported()
    assert door.ask("set_history_context", id=memory, source="Ana")["unpinned"] is True
    memory, witness = supported()
    door.ask("forget", id=witness, reason="Ana never said so.")
    assert door.details(memory)["pinned"] is False
    door.ask("review", id=memory, verdict="confirm", note="Looked at.")
    door.ask("restore", id=witness, reason="She did.")
    assert door.details(memory)["pinned"] is False, "nothing is pinned again silently"
    memory, witness = supported()
    door.api.request("DELETE", f"/brain/links/{witness}/evidence_for/{memory}")
    assert door.details(memory)["pinned"] is False
    memory, witness = supported()
    succeeded(door.api.post("/brain/purge", {"memory_id": witness}))
    assert door.details(memory)["pinned"] is False
    plain = door.anchor("The door code is on the wall.")
    assert door.ask("flag_sensitive", id=plain, reason="It opens a door.")["unpinned"] is True
    assert door.ask("flag_sensitive", id=plain, reason="Again.")["unpinned"] is False
    assert door.ask("recall")["anchors"] == []


# Tombstones


def test_a_tombstone_can_only_be_restored_or_purged(door: Door) -> None:
    canary = "xyzzycanary grows in the dark."
    memory_id = door.remember(canary, source="canarysource", session_id="s", session_position=1)["id"]
    other = door.remember("It grows elsewhere.")["id"]
    door.ask("forget", id=memory_id, reason="Nobody's business.")
    writes: dict[str, dict[str, Any]] = {
        "promote": {"id": memory_id, "reason": "x"},
        "pin": {"id": memory_id, "reason": "x"},
        "unpin": {"id": memory_id, "reason": "x"},
        "flag_sensitive": {"id": memory_id, "reason": "x"},
        "clear_sensitive": {"id": memory_id, "reason": "x"},
        "corroborate": {"id": memory_id, "source": "radio"},
        "retract_corroboration": {"id": memory_id, "source": "radio"},
        "forget": {"id": memory_id, "reason": "x"},
        "review": {"id": memory_id, "verdict": "confirm", "note": "x"},
        "mark_conflict": {"a": memory_id, "b": other, "reason": "x"},
        "set_frame": {"id": memory_id, "frame": "f"},
        "set_history_context": {"id": memory_id, "source": "radio"},
        "brain_memory_update": {"memory_id": memory_id, "content": "Rewritten."},
        "brain_memory_delete": {"memory_id": memory_id},
        "brain_memory_feedback": {"memory_id": memory_id, "verdict": "wrong"},
        "brain_memory_link": {"from_id": other, "type": "evidence_for", "to_id": memory_id},
        "brain_memory_supersede": {"content": "New.", "supersedes": [memory_id]},
    }
    for tool, arguments in writes.items():
        status, problem = door.send(tool, arguments)
        # In the brain view a forgotten memory can be forgotten again; nothing changes by it.
        assert status in (409, 410) or tool == "brain_memory_delete", (tool, problem)
        assert "canary" not in str(problem)
    backward = {"id": other, "memory_id": memory_id}
    door.refuse(409, "conflict_state", "corroborate", **backward)
    door.refuse(410, "memory_forgotten", "provenance", id=memory_id)
    for tool in ("recall", "timeline", "list_frames", "list_conflicts", "due_for_review"):
        assert "canary" not in str(door.ask(tool))
    back = door.ask("restore", id=memory_id, reason="It was a mistake.")["memory"]
    assert (back["content"], back["source"], back["corroborations"]) == (canary, "canarysource", 0)
    door.refuse(409, "conflict_state", "restore", id=memory_id, reason="x")
    succeeded(door.api.post("/brain/purge", {"memory_id": memory_id, "wait": True}))
    door.refuse(404, "memory_not_found", "restore", id=memory_id, reason="x")


def test_a_purge_leaves_no_label_behind(running: Server, tmp_path: Path) -> None:
    with server(tmp_path, mcp={"toolsets": list(TOOLSETS)}) as own:
        door = Door(own.api, over_http(own.api))
        memory_id = door.remember(
            "canarytext", source="canarysource", session_id="canarysession", session_position=1
        )["id"]
        door.ask("corroborate", id=memory_id, source="canarylabel", origin_id="canaryorigin")
        door.ask("set_history_context", id=memory_id, source="canarynew", session_position=2)
        door.ask("promote", id=memory_id, reason="canaryreason")
        succeeded(door.api.post("/brain/purge", {"memory_id": memory_id, "wait": True}))
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    assert left == []


# Frames


def test_no_frame_ever_shows_the_text_of_another(door: Door, clock: Clock) -> None:
    frames = ("Team-A", "team-b", "team-c")
    ids: dict[str, list[str]] = {}
    for frame in frames:
        mark = frame[-1].lower()
        anchor = door.anchor(f"canary{mark} anchor: the plan is ours.", frame=frame)
        guess = door.remember(f"canary{mark} guess about the plan.", frame=frame, tier="interpretation")
        fact = door.remember(f"canary{mark} fact about the plan.", frame=frame, source=f"canary{mark}")
        ids[frame] = [anchor, guess["id"], fact["id"]]
    for one, other in (("Team-A", "team-b"), ("team-b", "team-c"), ("team-c", "Team-A")):
        for a, b in zip(ids[one], ids[other], strict=True):
            door.ask("mark_conflict", a=a, b=b, reason="Plans differ.")
    common = door.remember("The plan is due in May.")
    clock.now += 31 * DAY
    for frame, spelling in zip(frames, ("team-a", "TEAM-B", " Team-C "), strict=True):
        mine = f"canary{frame[-1].lower()}"
        for query in ("the plan", None, "canarya canaryb canaryc"):
            recalled = door.ask("recall", query=query, frame=spelling, limit=100)
            others = {f"canary{letter}" for letter in "abc"} - {mine}
            assert not any(word in str(recalled) for word in others), (frame, query)
            assert mine in str(recalled) and common["id"] in str(recalled)
            assert recalled["conflicts"] and recalled["totals"]["conflicts"] >= 3
        told = door.ask("timeline", frame=spelling)
        assert {one["id"] for one in told["memories"]} == set(ids[frame])
    everywhere = str(door.ask("recall", query="the plan", limit=100))
    assert all(f"canary{letter}" in everywhere for letter in "abc")


# Authority and rights


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed_server(tmp_path_factory.mktemp("keyed"), mcp={"toolsets": list(TOOLSETS)}) as running:
        yield running


def test_who_may_not_claim_an_authority_may_not_touch_what_has_it(keyed: Keyed) -> None:
    chief = keyed.holder("acme", authority="policy", rights=["read", "write", "admin"])
    clerk_api = keyed.holder("acme", authority="team")
    clerk = Door(clerk_api, over_http(clerk_api))
    policy = chief.add("Keep logs for 30 days.", source_authority="policy")["memory"]["memory_id"]
    own = clerk.remember("Logs fill the disk.", tier="interpretation")["id"]
    acts: dict[str, dict[str, Any]] = {
        "promote": {"reason": "x"},
        "pin": {"reason": "x"},
        "unpin": {"reason": "x"},
        "flag_sensitive": {"reason": "x"},
        "corroborate": {"source": "radio"},
        "retract_corroboration": {"source": "radio"},
        "forget": {"reason": "x"},
        "restore": {"reason": "x"},
        "review": {"verdict": "challenge", "note": "x"},
        "set_frame": {"frame": "f"},
        "set_history_context": {"event_at": None},
    }
    version = chief.memory(policy, include="details")["details"]["version"]
    for tool, rest in acts.items():
        clerk.refuse(403, "authority_not_allowed", tool, id=policy, **rest)
    assert chief.memory(policy, include="details")["details"]["version"] == version
    clerk.refuse(403, "forbidden", "clear_sensitive", id=own, reason="I say so.")
    reader_api = keyed.holder("acme", rights=["read"])
    reader = Door(reader_api, over_http(reader_api))
    for name, operation in BY_NAME.items():
        if operation.right != "read" and "history" in operation.toolsets and name != "clear_sensitive":
            arguments = {"content": "x"} if name == "remember" else {"id": own, "reason": "x"}
            reader.refuse(403, "forbidden", name, **arguments)
    assert reader.ask("recall", query="logs")["memories"]
    entries = succeeded(chief.get("/brain/audit", params={"refused": True, "limit": 100}))["entries"]
    assert {one["action"] for one in entries} >= {*acts, "clear_sensitive", "remember"}


def test_another_users_memory_is_not_there(running: Server) -> None:
    agent = fresh("attack")
    mine, theirs = (Door(api := running.api.of(agent, user), over_http(api)) for user in ("me", "you"))
    foreign = theirs.anchor("Only yours.", frame="ours")
    own = mine.remember("Only mine.")["id"]
    mine.refuse(404, "memory_not_found", "corroborate", id=foreign, source="x")
    mine.refuse(404, "memory_not_found", "corroborate", id=own, memory_id=foreign)
    mine.refuse(404, "memory_not_found", "mark_conflict", a=own, b=foreign, reason="x")
    for tool in ("recall", "timeline", "list_frames", "due_for_consolidation"):
        assert "yours" not in str(mine.ask(tool)) and "ours" not in str(mine.ask(tool).get("frames"))
    problem = refused(
        mine.api.get("/brain/history/provenance", params={"id": foreign}), 404, "memory_not_found"
    )
    assert foreign in problem["detail"]
