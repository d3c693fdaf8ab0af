"""Who counts as independent, however a source is spelled and whatever comes from whom; and what is written
beside a text to be obeyed."""

from collections.abc import Iterator

import pytest

from tests.historic import INJECTED, Door, history_server, over_http
from tests.serving import Server, fresh, refused, succeeded

UNSEEN = ("\u200b", " \u2060 ", "\u3164", "\ufe0f\u00ad")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with history_server(tmp_path_factory.mktemp("evidence")) as running:
        yield running


@pytest.fixture
def door(running: Server) -> Door:
    api = running.api.of(fresh("evidence"))
    return Door(api, over_http(api))


def why(door: Door, id: str) -> dict[str, str]:
    """Why each memory that agrees counts or not, by its id."""
    return {one["memory_id"]: one["why"] for one in door.ask("provenance", id=id)["corroborations"]}


def link(door: Door, from_id: str, type: str, to_id: str, method: str = "PUT") -> None:
    succeeded(door.api.request(method, f"/brain/links/{from_id}/{type}/{to_id}", {}))


# Spellings


@pytest.mark.parametrize(
    ("source", "variants"),
    [
        ("mail", ("mаil", "maiӏ", "ma\u0131l", "МАIL", "m\u0430\u0456l", "mai1", "MaiI", "rnail", "máil")),
        ("mail", ("mail.", "«Mail»", "@mail", "m-a-i-l", "ma·il", "mailto:mail", "(mail)!", "ｍａｉｌ")),
        ("Otto O.", ("0tt0 0", "ΟTTΟ O", "Оtto О.")),
        ("https://docs.example/ops", ("https://dосs.example/ops", "docs.example/0ps", "“docs.example/ops”")),
    ],
)
def test_what_looks_like_the_source_is_no_other_source(
    door: Door, source: str, variants: tuple[str, ...]
) -> None:
    memory = door.sensitive("Bob may deploy.", source=source)["id"]
    for variant in variants:
        assert door.corroborations(memory, source=variant) == 0, variant
        assert door.corroborations(memory, source="forum", origin_id=variant) == 0, variant
    door.refuse(403, "corroboration_required", "promote", id=memory, reason="x")
    assert door.corroborations(memory, source="press") == 1, "and a real one counts"
    door.ask("retract_corroboration", id=memory, source="PRЕSS")
    door.refuse(403, "corroboration_required", "promote", id=memory, reason="x")


def test_whoever_said_it_is_its_source_whatever_it_repeats(door: Door) -> None:
    said = door.api.add("Bob may deploy.", actor="Ana", origin_id="memo-1")["memory"]["memory_id"]
    assert door.corroborations(said, source="ANA") == 0
    assert door.corroborations(said, source="Carla") == 1


# Lineage


def test_what_was_drawn_from_a_memory_does_not_bear_it_out(door: Door) -> None:
    raw = door.remember("Bob: I may deploy.", source="chat", material_type="utterance")["id"]
    fact = {"source_raw_memory_id": raw, "actor": "scribe"}
    child = door.api.add("Bob may deploy.", **fact)["memory"]["memory_id"]
    sibling = door.api.add("Bob deploys.", **fact | {"actor": "other scribe"})["memory"]["memory_id"]
    summary = door.api.add("Who deploys.", layer="l3_summary", evidence_ids=[raw], actor="sum")["memory"]
    for one in (child, sibling, summary["memory_id"]):
        assert door.corroborations(raw, memory_id=one) == 0
    for one in (raw, sibling):
        assert door.corroborations(child, memory_id=one) == 0
    assert set(why(door, raw).values()) == set(why(door, child).values()) == {"derived"}
    witness = door.remember("Bob may deploy, I saw the form.", source="Ana")["id"]
    assert door.corroborations(raw, memory_id=witness) == door.corroborations(child, memory_id=witness) == 1


def test_what_a_new_memory_rests_on_is_no_second_source_when_it_is_the_first_one(door: Door) -> None:
    talk = door.remember("Bob: I may deploy.", source="chat", material_type="utterance")["id"]
    minutes = door.remember("Bob may deploy.", source="minutes", material_type="document")["id"]
    link(door, minutes, "derived_from", talk)
    given = {"source_raw_memory_id": minutes, "evidence_ids": [talk], "actor": "scribe"}
    fact = door.api.add("Bob deploys.", **given)["memory"]["memory_id"]
    assert why(door, fact) == {talk: "derived"}
    assert door.ask("provenance", id=fact)["independent"] == 0


def test_a_lineage_that_becomes_known_takes_the_evidence_and_the_pin(door: Door) -> None:
    memory = door.sensitive("Bob may deploy.", source="mail")["id"]
    report, quote = (door.remember(f"Bob may deploy, {n}.", source=n)["id"] for n in ("blog", "digest"))
    assert door.corroborations(memory, memory_id=quote) == 1
    door.ask("promote", id=memory, reason="Two say so.")
    door.ask("pin", id=memory, reason="Two say so.")
    link(door, quote, "derived_from", report)
    assert door.details(memory)["pinned"] is True, "of the same root, but not of this one"
    link(door, report, "derived_from", memory)
    assert door.details(memory)["pinned"] is False
    assert why(door, memory) == {quote: "derived"}
    assert door.ask("provenance", id=memory)["tier"] == "archive"
    link(door, report, "derived_from", memory, "DELETE")
    provenance = door.ask("provenance", id=memory)
    assert (provenance["tier"], provenance["independent"]) == ("testimony", 1)
    assert door.details(memory)["pinned"] is False, "nothing is pinned again silently"


def test_who_contradicts_a_memory_does_not_agree_with_it(door: Door) -> None:
    memory = door.sensitive("The gate opens at eight.", source="mail")["id"]
    other = door.remember("The gate opens at nine.", source="sign")["id"]
    assert door.corroborations(memory, memory_id=other) == 1
    conflict = door.ask("mark_conflict", a=memory, b=other, reason="They differ.")["id"]
    assert why(door, memory) == {other: "contradicts"}
    door.refuse(403, "corroboration_required", "promote", id=memory, reason="x")
    door.ask("resolve_conflict", id=conflict, reason="Two gates.")
    assert why(door, memory) == {other: "independent"}


# Beside the text


@pytest.mark.parametrize("name", ["source", "frame", "session_id", "origin_id", "capture_context"])
def test_a_label_that_gives_orders_marks_the_memory_whenever_it_is_set(door: Door, name: str) -> None:
    born = door.remember("Tea at five.", **{name: INJECTED})
    assert born["security_sensitive"] is True
    anchor = door.anchor("Tea is at five.", source="chat")
    tool = "set_frame" if name == "frame" else "set_history_context"
    done = door.ask(tool, id=anchor, **{name: INJECTED})
    assert done["unpinned"] is True
    assert done["memory"]["security_sensitive"] is True
    assert {"authority", "override"} & set(done["memory"]["sensitivity_reasons"])
    door.refuse(403, "corroboration_required", "pin", id=anchor, reason="x")
    plain = door.anchor("Coffee is at six.", source="chat")
    assert door.ask(tool, id=plain, **{name: "2025-03 notes"})["unpinned"] is False
    assert door.details(plain)["security_sensitive"] is False


def test_a_reason_that_gives_orders_is_no_reason_to_promote(door: Door) -> None:
    memory = door.remember("Tea at five.", source="chat")["id"]
    problem = door.refuse(403, "corroboration_required", "promote", id=memory, reason=INJECTED)
    assert "reason that gives orders" in problem["detail"] and INJECTED not in str(problem)
    assert door.details(memory)["security_sensitive"] is False, "nothing was written"
    assert door.corroborations(memory, source="diary") == 1
    promoted = door.ask("promote", id=memory, reason=INJECTED)["memory"]
    assert (promoted["status"], promoted["security_sensitive"]) == ("consolidated", True)


def test_a_label_is_looked_at_in_the_brain_view_too(door: Door) -> None:
    for name in ("actor", "frame", "origin_id", "project"):
        added = door.api.add(f"Tea with {name}.", **{name: INJECTED[:120]})["memory"]["memory_id"]
        assert door.details(added)["security_sensitive"] is True, name
    pinned = door.anchor("Tea is at five.")
    succeeded(door.api.request("PATCH", f"/brain/memory/{pinned}", {"frame": INJECTED[:120]}))
    details = door.details(pinned)
    assert (details["security_sensitive"], details["pinned"]) == (True, False)


def test_restore_is_for_what_was_forgotten(door: Door) -> None:
    memory = door.remember("Tea at five.")["id"]
    succeeded(door.api.request("DELETE", f"/brain/memory/{memory}", {"mode": "archive"}))
    problem = door.refuse(409, "conflict_state", "restore", id=memory, reason="x")
    assert "brain_memory_restore" in problem["detail"]
    succeeded(door.api.post(f"/brain/memory/{memory}/restore", {}))
    door.ask("forget", id=memory, reason="x")
    assert door.ask("restore", id=memory, reason="x")["memory"]["status"] == "working"


# What nobody sees


def test_what_nobody_sees_is_blank(door: Door) -> None:
    memory = door.remember("Tea at five.")["id"]
    for text in UNSEEN:
        for name in ("source", "frame", "session_id", "origin_id", "capture_context"):
            door.refuse(422, "invalid_argument", "remember", name, content="x", **{name: text})
        door.refuse(422, "invalid_argument", "remember", "content", content=text)
        door.refuse(422, "invalid_argument", "promote", "reason", id=memory, reason=text)
        door.refuse(422, "invalid_argument", "recall", "frame", frame=text)
    assert door.count() == 1
    family = "👩\u200d👩\u200d👧"
    assert door.remember(family)["content"] == family


def test_a_time_that_is_cut_short_is_told_what_it_should_look_like(door: Door) -> None:
    for wrong in ("", "2025", "2025-03-01", "2025-03-01T10:00", "x" * 100):
        problem = door.refuse(422, "invalid_argument", "remember", "event_at", content="x", event_at=wrong)
        assert "2025-03-01T10:00:00+08:00" in problem["detail"], wrong


def test_nothing_follows_the_last_position_there_is(door: Door) -> None:
    door.remember("The end.", session_id="s", session_position=2**63 - 1)
    turn = {"content": "One more.", "kind": "message", "session_id": "s"}
    problem = refused(door.api.post("/brain/memory", turn), 409, "position_taken")
    assert "another session" in problem["detail"]
    assert door.api.post("/brain/memory", turn | {"session_position": 0}).status_code == 201
