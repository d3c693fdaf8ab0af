"""`list_raw_sessions` and the exact read, by the acceptance examples B1 to B20 of the contract, through both
doors."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from models.memory import Memory
from models.provenance import SummaryDetails
from models.raw_sessions import SessionName
from models.scope import Caller, Partition, Scope
from service.callers import PRODUCT
from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME
from service.schemas import output_schema
from stores import session_labels
from stores.acts import Act
from stores.insertion import insert_memory
from tests import seed_schemas
from tests.drafts import draft
from tests.raw_sessions import Door, door
from tests.serving import JSON, Server, eventually, server

KEYS = set(
    """session_ref host session_mode source_root project session_id first_epoch last_epoch message_count
    user_message_count assistant_message_count content_hash user_message_samples mmdd session_intent
    session_topic display_label session_intent_source""".split()
)
NEW_YEAR = 1735660800  # 2025-01-01 in Shanghai


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("raw"), mcp={"toolsets": list(TOOLSETS)}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture(params=["http", "mcp"])
def caller(running: Server, request: pytest.FixtureRequest) -> Door:
    return door(running, by_mcp=request.param == "mcp")


def test_the_served_schema_is_the_seeds() -> None:
    assert output_schema(BY_NAME["list_raw_sessions"]) == seed_schemas.output_schema("list_raw_sessions")


def test_b1_an_empty_store_has_no_sessions(caller: Door) -> None:
    assert caller.listing() == {
        "sample": 0,
        "count": 0,
        "excluded_legacy_rows": 0,
        "excluded_legacy_sessions": 0,
        "excluded_legacy_identities": [],
        "sessions": [],
        "since_epoch": None,
        "until_epoch": None,
        "latest": None,
        "project": None,
    }


def test_b2_a_session_has_its_ref_counts_and_hash(caller: Door) -> None:
    added = caller.add("s1", ("user", "Hello.", 100), ("assistant", "Hi.", 200))
    ref = "brain://raw-session/v1/636f6465782d636c69/6c6f63616c/2f7265706f/7331"
    counts = {name: added[name] for name in ("inserted", "duplicates", "empty", "conflicts", "session_ref")}
    assert counts == {"inserted": 2, "duplicates": 0, "empty": 0, "conflicts": 0, "session_ref": ref}
    [session] = caller.sessions()
    assert set(session) == KEYS
    assert session["session_ref"] == ref
    assert (session["first_epoch"], session["last_epoch"]) == (100, 200)
    assert [session[f"{whose}message_count"] for whose in ("", "user_", "assistant_")] == [2, 1, 1]
    assert re.fullmatch("sha256:[0-9a-f]{64}", session["content_hash"])
    assert session["user_message_samples"] == []
    assert session["session_mode"] == "unknown"


def test_b3_a_hash_changes_with_the_content_and_with_nothing_else(caller: Door) -> None:
    said = [("user", "One.", 100), ("assistant", "Two.", 200)]
    caller.transcript("s1", "t", *said)
    assert json.dumps(caller.listing()) == json.dumps(caller.listing())
    [before] = caller.sessions(sample=5, since="1", latest=3)
    caller.transcript("s1", "t", *said, ("user", "Three.", 300))
    [after] = caller.sessions()
    assert after["session_ref"] == before["session_ref"]
    assert after["content_hash"] != before["content_hash"]
    again = caller.transcript("s1", "t", *said, ("user", "Three.", 300))
    assert (again["inserted"], again["duplicates"]) == (0, 3)
    assert caller.sessions() == [after]
    assert caller.page("s1")["content_hash"] == after["content_hash"]


@pytest.mark.parametrize(
    ("at", "inside"), [(1767312000, True), (1767398399, True), (1767311999, False), (1767398400, False)]
)
def test_b4_and_case_19_a_day_is_in_to_its_last_second(caller: Door, at: int, inside: bool) -> None:
    caller.add("s1", ("user", "Hello.", at))
    found = caller.listing(since="2026-01-02", until="2026-01-02")
    assert (found["since_epoch"], found["until_epoch"]) == (1767312000, 1767398399)
    assert found["count"] == int(inside)


def test_b5_bounds_are_epochs_times_or_dates(caller: Door) -> None:
    for since in ("1767312000", "2026-01-02T00:00:00Z", "2026-01-02T08:00:00+08:00", " 2026-01-02 "):
        assert caller.listing(since=since)["since_epoch"] == 1767312000
    assert caller.listing(since="2026")["since_epoch"] == 2026
    assert caller.listing(since="2026-01-02T00:00:00.999Z")["since_epoch"] == 1767312000
    for wrong in ("yesterday", "", "2026-13-01", "2026-01-02T10:00", "2026-1-2x", "2026-01-02T10:00:00"):
        problem = caller.refused(422, "list_raw_sessions", since=wrong)
        assert problem["code"] == "invalid_argument"
        wanted = f'invalid time bound "{wrong}": expected Unix epoch, ISO8601 datetime, or YYYY-MM-DD'
        assert problem["detail"] == wanted


def test_b6_a_window_that_ends_before_it_begins_is_empty(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", 100), ("user", "Bye.", 300))
    assert caller.listing(since="250", until="150")["count"] == 0


def test_b7_a_window_selects_sessions_whole(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", 100), ("user", "Bye.", 300))
    [session] = caller.sessions(since="250")
    assert (session["first_epoch"], session["last_epoch"], session["message_count"]) == (100, 300, 2)
    assert caller.sessions(since="150", until="250") == []
    assert caller.ids(since="150", until="300") == caller.ids(since="100", until="100") == ["s1"]


def test_b8_latest_takes_the_newest(caller: Door) -> None:
    for number, (first, last) in enumerate([(10, 100), (20, 50), (30, 60)], 1):
        caller.add(str(number), ("user", "Hello.", first), ("user", "Bye.", last))
    assert caller.ids() == ["1", "2", "3"]
    found = caller.listing(latest=2)
    assert [session["session_id"] for session in found["sessions"]] == ["1", "3"]
    assert (found["count"], found["latest"]) == (2, 2)
    assert caller.ids(latest=99) == ["1", "3", "2"]
    for latest in (0, -1):
        problem = caller.refused(422, "list_raw_sessions", latest=latest)
        assert (problem["code"], problem["detail"]) == ("invalid_argument", "latest must be positive")


def test_b9_samples_are_the_first_texts_of_the_user(caller: Door) -> None:
    long = "🦉漢" * 250
    said = [("assistant", "a0", 1), ("user", "u1", 2), ("assistant", "a1", 3), ("user", "u2", 4)]
    caller.add("s1", *said, ("user", "u3", 5))
    caller.add("s2", ("user", long, 1))
    assert [one["user_message_samples"] for one in caller.sessions(sample=2)] == [["u1", "u2"], [long[:200]]]
    found = caller.listing(sample=-5)
    assert found["sample"] == 0
    assert [session["user_message_samples"] for session in found["sessions"]] == [[], []]
    assert caller.listing(sample=5000)["sample"] == 100


def test_b10_host_and_root_are_part_of_the_name(caller: Door) -> None:
    for host in ("claude-code", "codex-cli"):
        caller.add("same", ("user", "Hello.", 1), host=host)
    for root in ("a", "b"):
        caller.add("other", ("user", "Hello.", 1), source_root=root)
    found = caller.sessions()
    assert len(found) == 4
    assert len({session["session_ref"] for session in found}) == 4
    assert len({session["content_hash"] for session in found}) == 4


def test_b11_unresolved_provenance_is_left_out_and_named(caller: Door) -> None:
    caller.add("h1", ("user", "Hello.", 100))
    caller.add("h2", ("user", "Hello.", 200))
    added = caller.add("x", ("user", "Hello.", 300), host=None)
    assert added["session_ref"] is None
    excluded = [{"source_root": "local", "project": "/repo", "session_id": "x", "host": None}]
    for arguments, healthy in (({}, ["h1", "h2"]), ({"latest": 1}, ["h2"])):
        found = caller.listing(**arguments)
        assert [session["session_id"] for session in found["sessions"]] == healthy
        assert (found["excluded_legacy_rows"], found["excluded_legacy_sessions"]) == (1, 1)
        assert found["excluded_legacy_identities"] == excluded
    problem = caller.refused(409, "get_raw_messages", project="/repo", session_id="x")
    assert "raw session provenance is missing or conflicted for (local, /repo, x)" in problem["detail"]
    assert caller.listing(until="250")["excluded_legacy_rows"] == 0
    assert caller.listing(project="/other")["excluded_legacy_rows"] == 0
    # It taints the same names of every host.
    caller.add("x", ("user", "Hello.", 400))
    found = caller.listing()
    assert (found["count"], found["excluded_legacy_rows"], found["excluded_legacy_sessions"]) == (2, 2, 1)


def test_b12_two_modes_of_one_session_contradict_each_other(caller: Door) -> None:
    caller.add("good", ("user", "Hello.", 1))
    caller.transcript("s1", "t1", ("user", "One.", 1), session_mode="interactive")
    assert [one["session_mode"] for one in caller.sessions()] == ["unknown", "interactive"]
    added = caller.transcript("s1", "t2", ("user", "Two.", 2), session_mode="unattended")
    assert added["inserted"] == 1
    found = caller.listing()
    assert [session["session_id"] for session in found["sessions"]] == ["good"]
    [excluded] = found["excluded_legacy_identities"]
    assert (excluded["session_id"], excluded["host"]) == ("s1", "codex-cli")
    assert found["excluded_legacy_rows"] == 2


def test_b13_a_conflict_of_one_host_is_not_the_others(caller: Door) -> None:
    caller.transcript("s1", "t1", ("user", "One.", 1), host="claude-code")
    caller.transcript("s1", "t2", ("user", "Two.", 1))
    clash = caller.transcript("s1", "t2", ("user", "Two, but otherwise.", 1))
    assert (clash["inserted"], clash["conflicts"]) == (0, 1)
    found = caller.listing()
    assert [session["host"] for session in found["sessions"]] == ["claude-code"]
    assert [one["host"] for one in found["excluded_legacy_identities"]] == ["codex-cli"]
    caller.refused(409, "get_raw_messages", host="codex-cli", project="/repo", session_id="s1")
    assert caller.page("s1", host="claude-code")["total"] == 1


def test_b14_a_conflict_is_not_its_neighbours(caller: Door) -> None:
    good = [("user", "Good.", 1), ("assistant", "Yes.", 2)]
    caller.transcript("good", "g", *good)
    caller.transcript("bad", "b", ("user", "Bad.", 1))
    caller.transcript("bad", "b", ("assistant", "Bad.", 1))
    before = caller.listing()
    assert [session["session_id"] for session in before["sessions"]] == ["good"]
    assert caller.transcript("good", "g", *good)["duplicates"] == 2
    assert caller.listing() == before


def test_a_transcript_has_one_host(caller: Door) -> None:
    caller.transcript("s1", "t", ("user", "One.", 1))
    clash = caller.transcript("s1", "t", ("user", "One.", 1), host="claude-code")
    assert (clash["inserted"], clash["conflicts"]) == (0, 1)
    assert caller.listing()["count"] == 0


def test_b15_a_session_without_a_summary_has_its_day_alone(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", NEW_YEAR - 1))
    caller.add("s2", ("user", "Hello.", NEW_YEAR))
    found = caller.sessions()
    assert [session["mmdd"] for session in found] == ["1231", "0101"]
    for session in found:
        for name in ("session_intent", "session_topic", "display_label", "session_intent_source"):
            assert session[name] is None


def label(caller: Door, at: int, **details: Any) -> None:
    """What a session summary of s1 writes."""
    names = {"host": "codex-cli", "memory_session_id": "s1", "label_source": "summary"} | details
    status = names.pop("status", "active")
    project = names.pop("project", "/repo")
    partition = Partition(PRODUCT, caller.agent, PRODUCT)
    who = Caller(Scope(PRODUCT, caller.agent), None, frozenset({"write"}), "label")

    def write(transaction: Any) -> None:
        act = Act(who, "test", None)
        one = draft(f"Summary {at}", partition, "session_summary", SummaryDetails(**names), project, status)
        insert_memory(act, transaction, one)
        summary: Memory = transaction.changes[-1].memory
        session_labels.put(transaction, summary, at)

    caller.running.portal.call(caller.running.brain.write, write)


def labels(caller: Door) -> list[Any]:
    [session] = caller.sessions()
    return [session[f"session_{name}"] for name in ("intent", "topic", "intent_source")] + [
        session["display_label"]
    ]


def test_b16_a_summary_labels_its_session(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", NEW_YEAR))
    label(caller, 1, intent="FIX", topic="  Batch text display  ")
    assert labels(caller) == ["fix", "Batch text display", "summary", "0101\uff5cfix\uff5cBatch text display"]
    label(caller, 2, intent="doc")  # the newest counts wholesale
    assert labels(caller) == ["doc", None, "summary", None]


def test_b17_unknown_intents_and_long_topics_say_nothing(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", NEW_YEAR))
    label(caller, 1, intent="bugfix", topic="t" * 80)
    assert labels(caller) == [None, "t" * 80, "summary", None]
    label(caller, 2, intent="fix", topic="t" * 81)
    assert labels(caller) == ["fix", None, "summary", None]


def test_b18_a_quarantined_summary_labels_only_by_hand(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", NEW_YEAR))
    label(caller, 1, intent="fix", topic="Safe")
    label(caller, 2, intent="doc", topic="Unsafe", status="quarantined")
    assert labels(caller)[:2] == ["fix", "Safe"]
    label(caller, 3, intent=None, topic=None, label_source="override", status="quarantined")
    assert labels(caller) == [None, None, "override", None]


def test_b19_secrets_are_redacted_and_strangers_do_not_label(caller: Door) -> None:
    caller.add("s1", ("user", "Hello.", NEW_YEAR))
    label(caller, 1, intent="fix", topic="ask ada@example.org for ghp_" + "a1B2" * 9)
    shown = "ask [REDACTED] for [REDACTED]"
    assert labels(caller) == ["fix", shown, "summary", f"0101\uff5cfix\uff5c{shown}"]
    label(caller, 2, intent="doc", topic="Other", host="claude-code")
    label(caller, 3, intent="doc", topic="Other", host=None)
    label(caller, 4, intent="doc", topic="Other", project="/other")
    assert labels(caller)[0] == "fix"


def test_b20_a_project_is_exact_and_a_list_changes_nothing(caller: Door) -> None:
    for project in ("/repo", "/repo2", "/repo/", "repo", ""):
        caller.add(f"in {project}", ("user", "Hello.", 1), project=project)
    before = dump(caller.running)
    for project in ("/repo", ""):
        found = caller.listing(project=project, sample=2, since="0", until="2026-01-01", latest=5)
        assert [session["project"] for session in found["sessions"]] == [project] == [found["project"]]
    caller.page("in /repo")
    caller.ask("search_raw", query="hello")
    assert dump(caller.running) == before


def dump(running: Server) -> dict[str, Any]:
    """Every row of the ledger but those of the work that goes on behind: embedding and Chroma."""
    with running.brain.ledger.snapshot() as connection:
        names = (
            connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        )
        behind = {"outbox", "vectors", "token_vectors", "settings"}
        return {
            name: [tuple(row) for row in connection.execute(text(f'SELECT * FROM "{name}"'))]
            for name in names
            if name not in behind
        }


def test_an_exact_read_pages_at_one_moment(caller: Door) -> None:
    said = [("user", f"Message {number}.", number // 2) for number in range(7)]
    caller.add("s1", *said)
    page = caller.page("s1", limit=3)
    texts = [message["content"] for message in page["messages"]]
    caller.add("s1", ("user", "Later.", 0))
    while page["next_cursor"]:
        assert page["next_cursor"].startswith("rm1_")
        hashed = page["content_hash"]
        page = caller.page("s1", limit=3, cursor=page["next_cursor"])
        assert page["content_hash"] == hashed and page["total"] == 7
        texts += [message["content"] for message in page["messages"]]
    assert texts == [text for _, text, _ in said]
    assert caller.page("s1", limit=-3)["messages"][0]["content"] == "Message 0."
    assert caller.page("s1", limit=10**9)["total"] == 8


def test_a_cursor_belongs_to_its_session(caller: Door) -> None:
    for session in ("s1", "s2"):
        caller.add(session, ("user", "One.", 1), ("user", "Two.", 2))
    cursor = caller.page("s1", limit=1)["next_cursor"]
    names = {"host": "codex-cli", "project": "/repo"}
    for session, wrong in (("s2", cursor), ("s1", cursor[:-3]), ("s1", "rm1_"), ("s1", "no")):
        problem = caller.refused(422, "get_raw_messages", session_id=session, cursor=wrong, **names)
        assert problem["errors"][0]["field"] == "cursor"


def test_an_exact_read_names_its_session(caller: Door) -> None:
    caller.add("s1", ("user", "One.", 1))
    [session] = caller.sessions()
    page = caller.ask("get_raw_messages", session_ref=session["session_ref"])
    assert page == caller.page("s1") | {name: page[name] for name in ("elapsed_ms", "request_id")}
    problem = caller.refused(422, "get_raw_messages", host="cursor", project="/repo", session_id="s1")
    assert "host mismatch" in problem["detail"] and "codex-cli" in problem["detail"]
    unknown = caller.page("never")
    assert (unknown["messages"], unknown["next_cursor"], unknown["content_hash"]) == ([], None, None)
    assert caller.refused(422, "get_raw_messages", session_ref="brain://raw-session/v1/xx")["errors"]
    assert caller.refused(422, "get_raw_messages", project="/repo")["errors"][0]["field"] == "session_id"


def test_users_have_their_own_sessions(running: Server) -> None:
    whole = door(running, by_mcp=False)
    bodies: list[JSON] = []
    for user in ("ada", "bob"):
        api = running.api.of(whole.agent, user)
        said = [{"role": "user", "content": f"I am {user}.", "created_at": 1}]
        names = {"host": "codex-cli", "project": "", "session_id": "s1", "messages": said}
        assert api.post("/brain/raw/messages", names).json()["inserted"] == 1
        bodies.append(api.get("/brain/raw/sessions?sample=1").json())
    assert [body["sessions"][0]["user_message_samples"] for body in bodies] == [["I am ada."], ["I am bob."]]
    assert whole.listing()["count"] == 2
    assert "ada, bob" in whole.refused(422, "get_raw_messages", session_id="s1")["detail"]
    assert door(running, by_mcp=False).listing()["count"] == 0


def test_a_ref_is_read_back_and_nothing_else_is() -> None:
    name = SessionName("cursor", "ü", "", "a/b")
    assert name.ref is not None and SessionName.from_ref(name.ref) == name
    for wrong in ("", "brain://raw-session/v1/61/62/63", "brain://raw-session/v1/61/62/63/ff", "x"):
        assert SessionName.from_ref(wrong) is None
