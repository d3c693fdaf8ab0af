"""Transcripts: their real shapes, all or nothing, each message once; and what happens to messages later."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.arguments import JSON_LINES
from service.operations import BY_NAME
from service.raw_ingest import PART
from tests.equivalence import check
from tests.raw_sessions import Door, door, lines
from tests.serving import JSON, Api, Server, eventually, server, succeeded

FOLDER = Path(__file__).parent / "fixtures" / "transcripts"
ROUTE = BY_NAME["ingest_transcript"].route.path
NOW = 1_767_400_000_000  # epoch ms


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("transcripts"), mcp={"toolsets": ["observations"]}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def caller(running: Server) -> Door:
    return door(running, by_mcp=False)


def stream(api: Api, body: bytes, **arguments: Any) -> JSON:
    answer = api.post(ROUTE, body, params=arguments, headers={"content-type": JSON_LINES})
    return succeeded(answer)


def counts(answer: JSON) -> list[Any]:
    names = ("scanned_lines", "inserted", "duplicates", "skipped", "empty", "parse_errors", "status")
    return [answer[name] for name in names]


def fixture(name: str) -> str:
    return (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")


def test_a_transcript_of_claude_code(caller: Door) -> None:
    answer = caller.ask("ingest_transcript", host="claude-code", content=fixture("claude-code"))
    assert counts(answer) == [9, 6, 0, 2, 1, 0, "ok"]
    [session] = caller.sessions(sample=9)
    assert session["session_ref"] == answer["session_ref"]
    assert (session["project"], session["host"]) == ("/work/harbour", "claude-code")
    assert session["session_id"] == "0b1c6a52-3d0e-4a77-9f39-2f0f7a6d1c01"
    assert (session["first_epoch"], session["last_epoch"]) == (1767347998, 1767348120)
    assert session["user_message_samples"][1:] == [
        "The tide table shows 13:60 for noon. Please mend it.",
        *["ok"] * 2,
    ]
    found = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    assert [one["ordinal"] for one in found] == [1, 2, 3, 5, 6, 7]
    assert [one["meta"] for one in found] == [True, *[False] * 5]
    assert [one["branch"] for one in found] == ["main"] * 3 + ["tide"] * 3
    assert found[3]["content"] == "Rounding gave minute 60.\nIt carries into the hour now."


def test_a_transcript_of_codex(caller: Door) -> None:
    answer = stream(caller.api, fixture("codex-cli").encode(), host="codex-cli")
    assert counts(answer) == [9, 2, 0, 7, 0, 0, "ok"]
    [session] = caller.sessions()
    assert (session["session_id"], session["session_mode"]) == ("019b-harbour-0001", "unattended")
    found = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    assert [(one["role"], one["content"]) for one in found] == [
        ("user", "List the ferries.\nSort them by hour."),
        ("assistant", "They sail at 7, 9 and 12."),
    ]
    assert {one["branch"] for one in found} == {"main"}


@pytest.mark.parametrize(
    ("payload", "mode"),
    [
        ({"thread_source": "subagent", "originator": "codex_exec"}, "subagent"),
        ({"thread_source": "automation", "originator": "codex-tui"}, "unattended"),
        ({"originator": "symphony-orchestrator"}, "unattended"),
        ({"originator": "codex_cli_rs"}, "interactive"),
        ({"originator": "Codex Desktop", "source": {"subagent": "review"}}, "interactive"),
        ({"originator": "another"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_mode_of_a_session_of_codex(caller: Door, payload: JSON, mode: str) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "text", "text": "Hello."}]}
    records = [
        {"type": "session_meta", "payload": {"id": "s", **payload}},
        {"type": "response_item", "created_at": 5, "payload": said},
    ]
    caller.ask("ingest_transcript", host="codex-cli", content=lines(records))
    assert [session["session_mode"] for session in caller.sessions()] == [mode]


def test_a_snapshot_of_cursor_comes_again_and_again(caller: Door) -> None:
    names = {"host": "cursor", "session_id": "c1", "project": "/work/harbour"}
    assert counts(caller.ask("ingest_transcript", content=fixture("cursor"), **names)) == [
        3,
        2,
        0,
        0,
        1,
        0,
        "ok",
    ]
    more = fixture("cursor") + lines([{"role": "user", "message": {"content": "Thanks.\r"}}])
    answer = caller.ask("ingest_transcript", content=more, **names)
    assert counts(answer) == [4, 1, 2, 0, 1, 0, "ok"]
    found = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    assert found[1]["content"] == "  North and south."
    problem = caller.refused(422, "ingest_transcript", host="cursor", content=fixture("cursor"))
    assert problem["errors"][0]["field"] == "session_id"


def claude(*texts: Any, session: str = "s", at: int = 1_767_312_000) -> list[JSON]:
    return [
        {"type": "user", "sessionId": session, "timestamp": at + number, "message": {"content": text}}
        for number, text in enumerate(texts)
    ]


def test_case_18_the_same_text_twice_stays_two_and_again_adds_nothing(caller: Door) -> None:
    body = lines(claude("Yes.", "Yes.", "No.")).encode()
    for root in ("a", "b"):
        assert counts(stream(caller.api, body, host="claude-code", source_root=root))[1:3] == [3, 0]
        again = stream(caller.api, body, host="claude-code", source_root=root)
        assert counts(again) == [3, 0, 3, 0, 0, 0, "duplicate_only"]
    other = lines(claude("Yes.", session="other")).encode()
    assert stream(caller.api, other, host="claude-code")["inserted"] == 1
    assert [session["message_count"] for session in caller.sessions()] == [3, 3, 1]


def test_without_a_transcript_a_text_is_in_once_for_each_role(caller: Door) -> None:
    said = [("user", "Yes.", 1), ("user", " Yes. ", 2), ("assistant", "Yes.", 3), ("user", "  ", 4)]
    answer = caller.add("s1", *said)
    assert [answer[name] for name in ("inserted", "duplicates", "empty")] == [2, 1, 1]
    assert caller.add("s1", *said)["inserted"] == 0
    assert caller.add("s2", *said)["inserted"] == 2
    assert caller.add("s1", *said, source_root="other")["inserted"] == 2


def test_a_line_that_cannot_be_read_undoes_the_file(caller: Door) -> None:
    good = lines(claude("One.", "Two."))
    bad = {
        "{": "line 3: it is not JSON",
        "\udcff": "line 3: it is not UTF-8: byte 0",
        json.dumps(
            claude("x", at=1_767_312_000_000)[0]
        ): "line 3: its time is in milliseconds; seconds are wanted",
    }
    for line, error in bad.items():
        body = f"{good}{line}\n{good}".encode(errors="surrogateescape")
        answer = stream(caller.api, body, host="claude-code")
        assert counts(answer) == [3, 0, 0, 0, 0, 1, "failed"]
        assert answer["error"] == error
    assert caller.listing()["count"] == 0
    assert counts(stream(caller.api, b"{\n", host="claude-code"))[-2:] == [1, "failed"]
    assert stream(caller.api, good.encode(), host="claude-code")["inserted"] == 2


def test_a_last_line_that_is_being_written_waits(tmp_path: Path) -> None:
    with server(tmp_path, clock=lambda: NOW) as running:
        api = running.api
        good = lines(claude("One.", "Two.")).encode()
        cut = good + b'{"type": "user", "message": {"content": "\xe6'
        arguments = {"host": "claude-code", "modified_at_epoch": NOW // 1000 - 60}
        assert counts(stream(api, cut, **arguments)) == [2, 2, 0, 0, 0, 0, "partial"]
        whole = good + lines(claude("Three.")).encode()
        assert counts(stream(api, whole, **arguments)) == [3, 1, 2, 0, 0, 0, "ok"]
        old = arguments | {"modified_at_epoch": NOW // 1000 - 61}
        assert counts(stream(api, cut, **old))[-1] == "failed"
        middle = stream(api, b"{\n" + good, **arguments | {"session_id": "s"})
        assert middle["error"] == "line 1: it is not JSON"


def test_a_transcript_that_contradicts_itself_is_in_conflict(caller: Door) -> None:
    assert stream(caller.api, lines(claude("One.", "Two.")).encode(), host="claude-code")["inserted"] == 2
    answer = stream(caller.api, lines(claude("Zero.", "One, two.", "Two.")).encode(), host="claude-code")
    assert counts(answer) == [3, 0, 0, 0, 0, 0, "failed"]
    assert answer["error"].startswith("conflict: message 0 ")
    assert caller.listing()["excluded_legacy_rows"] == 2
    again = stream(caller.api, lines(claude("One.", "Two.")).encode(), host="claude-code")
    assert again["error"] == "conflict: the transcript is in conflict"


def test_odd_lines_are_no_fault(caller: Door) -> None:
    half = '{"type":"user","sessionId":"s","timestamp":"5","message":{"content":"cut \\ud83d\\u0000 off"}}'
    rest = [
        "",
        "17",
        "null",
        '{"type":"user"}',
        '{"type":"user","message":{"content":[null,{"type":"text"}]}}',
    ]
    answer = stream(caller.api, "\r\n".join([half, *rest]).encode(), host="claude-code")
    assert counts(answer) == [6, 1, 0, 4, 1, 0, "ok"]
    found = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    assert found[0]["content"] == "cut \ufffd\ufffd off" and found[0]["created_at_epoch"] == 5


def test_eight_clients_bring_overlapping_transcripts(caller: Door) -> None:
    texts = [f"Line {number}, ticket OV-{number}." for number in range(120)]
    ready = threading.Barrier(8)

    def bring(number: int) -> list[JSON]:
        api = caller.running.api.of(caller.agent)
        ready.wait()
        answers = []
        for session in ("s0", "s1", "s2"):
            body = lines(claude(*texts[: 50 + 10 * number], session=session)).encode()
            answers.append(stream(api, body, host="claude-code"))
        return answers

    with ThreadPoolExecutor(8) as clients:
        answers = [answer for some in clients.map(bring, range(8)) for answer in some]
    assert {answer["status"] for answer in answers} <= {"ok", "duplicate_only"}
    assert sum(answer["inserted"] for answer in answers) == 3 * 120
    sizes = 3 * sum(50 + 10 * number for number in range(8))
    assert sum(answer["duplicates"] for answer in answers) == sizes - 3 * 120
    assert [session["message_count"] for session in caller.sessions()] == [120] * 3


def test_messages_are_memories_in_their_session(caller: Door) -> None:
    answer = stream(caller.api, fixture("claude-code").encode(), host="claude-code")
    [hit, *_] = caller.api.search("tide table 13:60", context=1)["results"]
    assert (hit["layer"], hit["content"][:14]) == ("l1_raw", "The tide table")
    found = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    detail = caller.api.memory(found[1]["memory_id"], include="details")["details"]
    assert (detail["session_position"], detail["kind"], detail["role"]) == (1, "message", "user")
    related = succeeded(caller.api.get(f"/brain/memory/{found[1]['memory_id']}/related"))
    neighbours = {one["memory_id"] for one in related["nodes"]}
    assert {found[0]["memory_id"], found[2]["memory_id"]} <= neighbours


def test_a_large_transcript_is_found_whole_though_its_partition_was_in_memory(caller: Door) -> None:
    caller.api.add("Here before, H-1.")
    assert caller.api.search("H-1")["results"]
    count = 2 * PART + 300
    texts = [f"Entry {number}, code LG-{number}." for number in range(count)]
    assert stream(caller.api, lines(claude(*texts)).encode(), host="claude-code")["inserted"] == count
    for number in (0, PART, count - 1):
        [hit, *_] = caller.api.search(f"LG-{number}", limit=1)["results"]
        assert hit["content"] == texts[number]
    audit = succeeded(caller.api.get("/brain/audit", params={"limit": 5, "action": "ingest_transcript"}))
    assert len(audit["entries"]) == 5 and audit["verified"]
    caller.running.settle()
    caller.running.portal.call(check, caller.running.brain)


def test_what_is_forgotten_is_in_no_list_and_what_is_purged_does_not_come_back(caller: Door) -> None:
    body = lines(claude("Keep.", "Forget.", "Purge.")).encode()
    answer = stream(caller.api, body, host="claude-code")
    [before] = caller.sessions()
    ids = {one["content"]: one["memory_id"] for one in _messages(caller, answer)}
    succeeded(caller.api.request("DELETE", f"/brain/memory/{ids['Forget.']}", {}))
    assert [one["content"] for one in _messages(caller, answer)] == ["Keep.", "Purge."]
    [hidden] = caller.sessions(sample=5)
    assert hidden["user_message_samples"] == ["Keep.", "Purge."] and hidden["message_count"] == 2
    assert caller.ask("search_raw", query="forget")["messages"] == []
    succeeded(caller.api.post(f"/brain/memory/{ids['Forget.']}/restore", {}))
    assert caller.sessions() == [before]
    succeeded(caller.api.post("/brain/purge", {"memory_id": ids["Purge."]}))
    assert counts(stream(caller.api, body, host="claude-code"))[1:3] == [0, 3]
    assert [one["content"] for one in _messages(caller, answer)] == ["Keep.", "Forget."]
    succeeded(caller.api.post("/brain/purge", {"session_id": "s"}))
    assert caller.listing()["count"] == 0
    assert stream(caller.api, body, host="claude-code")["inserted"] == 0


def _messages(caller: Door, answer: JSON) -> list[JSON]:
    found: list[JSON] = caller.ask("get_raw_messages", session_ref=answer["session_ref"])["messages"]
    return found


def test_case_20_a_search_takes_nothing_for_an_operator(caller: Door) -> None:
    said = [
        "run om-generator now",
        'say "hi',
        "if a AND (b)",
        "2 * 3",
        "你好世界",
        "100% of it_all",
        "ＷＩＤＥ Straße",
    ]
    caller.add("s1", *(("user", text, number) for number, text in enumerate(said)))
    wanted = {
        "om-generator": 0,
        '"': 1,
        "a AND (": 2,
        "*": 3,
        "你好": 4,
        "%": 5,
        "it_all": 5,
        "STRASSE": 6,
        "wide": 6,
        "OM-Generator NOW": 0,
        "now run": 0,
    }
    for query, index in wanted.items():
        found = caller.ask("search_raw", query=query)["messages"]
        assert [one["snippet"] for one in found] == [said[index]], query
    for query in ("om-generators", "hi there", "runs now", "_", "a OR b"):
        expected = [said[5]] if query == "_" else []
        assert [one["snippet"] for one in caller.ask("search_raw", query=query)["messages"]] == expected, (
            query
        )
    assert caller.refused(422, "search_raw", query=" ")["code"] == "invalid_argument"


def test_a_search_filters_and_pages_newest_first(caller: Door) -> None:
    caller.add(
        "s1", *(("user" if number % 2 else "assistant", f"word {number}", number) for number in range(9))
    )
    caller.add("s2", ("user", "word of another", 100), project="/other")
    caller.api.add(
        messages=[{"role": "user", "content": "a word by the brain view", "at": 50_000}], session_id="x"
    )
    found: list[str] = []
    cursor: JSON = {}
    while cursor.get("cursor", "") is not None:
        page = caller.ask("search_raw", query="word", limit=4, **cursor)
        found += [one["snippet"] for one in page["messages"]]
        cursor = {"cursor": page["next_cursor"]}
    rest = [f"word {number}" for number in reversed(range(9))]
    assert found == ["word of another", "a word by the brain view", *rest]

    def snippets(**arguments: Any) -> list[str]:
        return [one["snippet"] for one in caller.ask("search_raw", query="word", **arguments)["messages"]]

    assert snippets(project="/other") == ["word of another"]
    assert snippets(role="assistant", since="4", until="7") == ["word 6", "word 4"]
    assert snippets(branch="main") == []
    first = caller.ask("search_raw", query="word", limit=1)["next_cursor"]
    assert caller.refused(422, "search_raw", query="words", limit=1, cursor=first)["errors"]


def test_arguments_of_messages_are_checked(caller: Door) -> None:
    names = {"host": "codex-cli", "project": "", "session_id": "s"}
    one = {"role": "user", "content": "Hello."}
    wrong: list[tuple[JSON, str]] = [
        ({"created_at": 1_700_000_000_000}, "messages[0].created_at"),
        ({"created_at": 1.5}, "messages[0].created_at"),
        ({"created_at": True}, "messages[0].created_at"),
        ({"created_at": "yesterday"}, "messages[0].created_at"),
        ({"ordinal": -1}, "messages[0].ordinal"),
        ({"role": "robot"}, "messages[0].role"),
    ]
    for more, field in wrong:
        problem = caller.refused(422, "add_raw_messages", messages=[one | more], **names)
        assert problem["errors"][0]["field"] == field, problem
    twice = [one | {"ordinal": 3}, one | {"ordinal": 3}]
    problem = caller.refused(422, "add_raw_messages", messages=twice, transcript_id="t", **names)
    assert problem["errors"][0]["field"] == "messages[1].ordinal"
    for name, value in (("host", "Claude Code"), ("source_root", "cursor-outcome"), ("session_id", " ")):
        problem = caller.refused(422, "add_raw_messages", **(names | {"messages": [one], name: value}))
        assert problem["errors"][0]["field"] == name
    good = [one | {"created_at": at} for at in (5, "6", "1970-01-01T00:00:07Z", None)]
    good = [message | {"content": f"Hello {number}."} for number, message in enumerate(good)]
    assert caller.ask("add_raw_messages", messages=good, **names)["inserted"] == 4
    epochs = [one["created_at_epoch"] for one in caller.page("s", project="")["messages"]]
    assert epochs[:3] == [5, 6, 7] and epochs[3] > 1_700_000_000


def test_a_call_with_its_key_again_answers_the_same(caller: Door) -> None:
    first = caller.add("s1", ("user", "Once.", 1), idempotency_key="k")
    again = caller.add("s1", ("user", "Once.", 1), idempotency_key="k")
    assert (again["inserted"], again["replayed"]) == (first["inserted"], True)


def test_embedding_follows_behind(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        api = running.api
        stream(api, fixture("claude-code").encode(), host="claude-code")
        running.settle()
        assert api.readyz()["status"] == "ready"
        found = api.search("noon on the tide table")["results"]
        assert "vector" in found[0]["matched_by"]
