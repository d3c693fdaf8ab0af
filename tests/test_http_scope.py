"""Whose memory it is: agents and users never meet, and nobody learns what others have."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.serving import JSON, Api, Server, eventually, fresh, refused, server

pytest_plugins = ["tests.serving_fixtures"]

NOBODY = "018f3e5a-0000-7000-8000-000000000000"


def found(api: Api, query: str) -> set[str]:
    return {hit["memory_id"] for hit in api.search(query, limit=100)["results"]}


def listed(api: Api) -> set[str]:
    return {memory["memory_id"] for memory in api.list(limit=100)["memories"]}


def test_agents_see_only_their_own(api: Api) -> None:
    other = api.of(agent=fresh())
    mine, theirs = (caller.add("The same text.")["memory"]["memory_id"] for caller in (api, other))
    assert listed(api) == found(api, "same text") == {mine}
    assert listed(other) == found(other, "same text") == {theirs}
    refused(api.get(f"/brain/memory/{theirs}"), 404, "memory_not_found")
    refused(api.try_add("a", evidence_ids=[theirs]), 422, "invalid_argument", "evidence_ids[0]")


def test_a_user_sees_only_their_own_and_a_request_without_one_sees_the_whole_scope(api: Api) -> None:
    alex, sam = api.of(user="alex"), api.of(user="sam")
    ids = {caller.user: caller.add("Remember me.")["memory"]["memory_id"] for caller in (api, alex, sam)}
    assert listed(alex) == found(alex, "remember me") == {ids["alex"]}
    assert listed(api) == set(ids.values())
    assert {memory["user_id"] for memory in api.list()["memories"]} == {"default", "alex", "sam"}
    for user, id in ids.items():
        assert api.memory(id)["user_id"] == (user or "default")
    refused(alex.get(f"/brain/memory/{ids['sam']}"), 404, "memory_not_found")
    refused(alex.get(f"/brain/memory/{ids[None]}"), 404, "memory_not_found")
    # The default user is the product's name, and may be named.
    assert listed(api.of(user="default")) == {ids[None]}


def test_case_17_a_joined_name_never_meets_another(api: Api) -> None:
    first = Api(api.http, f"{api.agent}-c", "a::b")
    second = Api(api.http, f"b::{api.agent}-c", "a")
    one, two = (caller.add("Between the colons.")["memory"] for caller in (first, second))
    assert listed(first) == found(first, "colons") == {one["memory_id"]}
    assert listed(second) == found(second, "colons") == {two["memory_id"]}
    assert (one["agent_id"], one["user_id"]) == (first.agent, "a::b")
    refused(first.get(f"/brain/memory/{two['memory_id']}"), 404, "memory_not_found")


def test_a_foreign_id_is_answered_exactly_like_one_that_never_existed(api: Api) -> None:
    headers = {"x-request-id": "same"}
    alex = api.of(user="alex")
    foreign = [
        api.of(agent=fresh()).add("Another agent's.")["memory"]["memory_id"],
        api.of(user="sam").add("Another user's.")["memory"]["memory_id"],
    ]
    never = alex.get(f"/brain/memory/{NOBODY}", headers=headers)
    for id in foreign:
        answer = alex.get(f"/brain/memory/{id}", headers=headers)
        assert answer.status_code == never.status_code == 404
        assert answer.content.replace(id.encode(), NOBODY.encode()) == never.content
        names = {name for name, _ in answer.headers.multi_items()}
        assert names == {name for name, _ in never.headers.multi_items()}
    as_evidence = [alex.try_add("a", evidence_ids=[id]).json()["errors"] for id in (*foreign, NOBODY)]
    assert as_evidence[0] == as_evidence[1] == as_evidence[2]


def test_many_who_ask_at_once_after_a_start_all_get_the_whole_scope(tmp_path: Path) -> None:
    users = ("alex", "sam", None)
    with server(tmp_path) as running:
        for user in users:
            running.api.of(user=user).add("Found by everybody.")
    with server(tmp_path) as running, ThreadPoolExecutor(8) as pool:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)

        def ask(_: int) -> JSON:
            return running.api.search("everybody")

        answers = list(pool.map(ask, range(8)))
    assert [len(answer["results"]) for answer in answers] == [3] * 8


def test_who_writes_reads_it_at_once_while_partitions_come_and_go(shared_server: Server, api: Api) -> None:
    def work(worker: int) -> None:
        me = api.of(user=f"user-{worker % 3}")
        for number in range(12):
            added = me.add(f"worker{worker} round{number}")
            assert added["memory"]["content"] == f"worker{worker} round{number}"
            id = added["memory"]["memory_id"]
            if number % 4 == worker % 4:
                shared_server.evict(api)
            assert me.memory(id)["memory_id"] == id
            assert id in found(me, f"worker{worker} round{number}")
            assert id in found(api, f"worker{worker} round{number}")
            assert id in {memory["memory_id"] for memory in me.list(limit=10)["memories"]}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert api.search("worker0", limit=100)["total_candidates"] == api.stats()["total"] == 48


def test_a_user_who_comes_later_is_found_by_the_whole_scope(api: Api) -> None:
    assert api.search("anything")["results"] == []
    for user in ("alex", "sam", None):
        id = api.of(user=user).add(f"News of {user}.")["memory"]["memory_id"]
        assert id in found(api, "news")
