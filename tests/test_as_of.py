"""What was known at a time: `as_of` on get and list, against a plain model that remembers every state."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving import JSON, Api, Server, fresh, refused, server, succeeded
from tests.state.brains import Clock

START = 1_700_000_000_000
TEXTS = ("one", "two", "three")
TAGS = ("a", "b", "c")

# A step: what is done, to which memory or text, with which tag or other memory, and how many ms have passed.
steps = st.lists(
    st.tuples(
        st.sampled_from(("add", "add", "link", "unlink", "archive", "forget", "restore", "update")),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=10,
)


@dataclass(frozen=True)
class Known:
    """A memory as the model has it."""

    content: str
    tags: tuple[str, ...]
    status: str = "active"
    evidence: tuple[str, ...] = ()


World = dict[str, Known]


@dataclass
class Model:
    """The world after each step, with its time."""

    moments: list[tuple[int, World]] = field(default_factory=list)

    @property
    def now(self) -> World:
        return self.moments[-1][1] if self.moments else {}

    def at(self, time: int) -> World:
        return next((world for moment, world in reversed(self.moments) if moment <= time), {})

    def change(self, time: int, memory_id: str, **values: Any) -> None:
        """Another state of a memory."""
        new = replace(self.now[memory_id], **values)
        self.moments.append((time, {**self.now, memory_id: new}))

    def expected(self, memory_id: str, time: int) -> Known | str:
        """The state that a get shows, or the code of its refusal."""
        then = self.at(time).get(memory_id)
        if self.now[memory_id].status == "forgotten":
            return "memory_forgotten"
        if then is None:
            return "memory_not_found"
        return "memory_forgotten" if then.status == "forgotten" else then


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(START)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("as-of"), clock=clock) as running:
        yield running


@pytest.fixture
def api(served: Server) -> Api:
    return served.api.of(fresh())


def act(api: Api, model: Model, time: int, step: tuple[str, int, int, int]) -> None:
    """Do a step, if it can be done, in the brain and in the model."""
    name, first, second, _ = step
    ids = list(model.now)
    if name == "add":
        add(api, model, time, TEXTS[first % 3], TAGS[second % 3])
        return
    if not ids:
        return
    one, other = ids[first % len(ids)], ids[second % len(ids)]
    status = model.now[one].status
    if name in ("link", "unlink"):
        if one != other and "forgotten" not in (status, model.now[other].status):
            path = f"/brain/links/{other}/evidence_for/{one}"
            succeeded(api.request("PUT" if name == "link" else "DELETE", path))
            evidence = dict.fromkeys(model.now[one].evidence)
            if name == "link":
                evidence[other] = None
            else:
                evidence.pop(other, None)
            model.change(time, one, evidence=tuple(evidence))
    elif name == "restore":
        if status in ("archived", "forgotten"):
            succeeded(api.post(f"/brain/memory/{one}/restore", {}))
            model.change(time, one, status="active")
    elif status == "active" and name == "update":
        succeeded(api.request("PATCH", f"/brain/memory/{one}", {"tags": [TAGS[second % 3]]}))
        model.change(time, one, tags=(TAGS[second % 3],))
    elif status == "active" and name in ("archive", "forget"):
        succeeded(api.request("DELETE", f"/brain/memory/{one}", params={"mode": name}))
        model.change(time, one, status={"archive": "archived", "forget": "forgotten"}[name])


def add(api: Api, model: Model, time: int, content: str, tag: str) -> None:
    memory_id = api.add(content, tags=[tag])["memory"]["memory_id"]
    if memory_id in model.now:
        tags = tuple(dict.fromkeys((*model.now[memory_id].tags, tag)))
        model.change(time, memory_id, tags=tags)
    else:
        model.moments.append((time, {**model.now, memory_id: Known(content, (tag,))}))


def shown(memory: JSON) -> Known:
    details = memory["details"]
    return Known(
        memory["content"],
        tuple(memory["tags"]),
        memory["status"],
        tuple(details["evidence_ids"]),
    )


def walk(api: Api, **params: Any) -> list[JSON]:
    """All pages of two, with their totals checked."""
    seen: list[JSON] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.list(limit=2, **params, **cursor)
        seen += page["memories"]
        if page["next_cursor"] is None:
            assert page["total"] == len(seen)
            return seen
        cursor = {"cursor": page["next_cursor"]}


def check(api: Api, model: Model, time: int) -> None:
    visible: dict[str, Known] = {}
    for memory_id in model.now:
        answer = api.get(f"/brain/memory/{memory_id}", params={"as_of": time, "include": "details"})
        expected = model.expected(memory_id, time)
        if isinstance(expected, str):
            refused(answer, 410 if expected == "memory_forgotten" else 404, expected)
        else:
            assert shown(succeeded(answer)) == expected
            visible[memory_id] = expected
    for status in ("active", "archived"):
        for tag in (None, "a"):
            ids = [
                memory_id
                for memory_id, known in visible.items()
                if known.status == status and (tag is None or tag in known.tags)
            ]
            found = walk(api, as_of=time, status=status, order="oldest", **({"tag": tag} if tag else {}))
            assert [memory["memory_id"] for memory in found] == ids
            assert [tuple(memory["tags"]) for memory in found] == [visible[id].tags for id in ids]


def lived(api: Api, clock: Clock, done: list[Any]) -> tuple[Model, range]:
    """Do these steps: the model of them, and every moment from before the first to after the last."""
    model = Model()
    clock.ms += 10
    begun = clock.ms
    for step in done:
        clock.ms += step[3]
        act(api, model, clock.ms, step)
    clock.ms += 1
    return model, range(begun - 1, clock.ms + 2)


@settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_every_moment_is_shown_as_it_was(served: Server, clock: Clock, done: list[Any]) -> None:
    api = served.api.of(fresh())
    model, moments = lived(api, clock, done)
    for time in moments:
        check(api, model, time)


def test_a_cursor_stays_with_the_moment_of_its_first_page(clock: Clock, api: Api) -> None:
    for text in TEXTS:
        api.add(text)
    now = clock.ms
    for order in ("oldest", "newest"):
        params: dict[str, Any] = {"as_of": now, "order": order, "limit": 1}
        first = api.list(**params)
        api.add(f"in the same millisecond, {order}")
        api.add({"oldest": "two", "newest": "three"}[order], tags=["changed in it"])
        second = api.list(**params, cursor=first["next_cursor"])
        assert second["total"] == first["total"]
        assert second["memories"][0]["content"] == {"oldest": "two", "newest": "three"}[order]
        assert second["memories"][0]["tags"] == []
        refused(
            api.get("/brain/memory", params={**params, "as_of": now - 1, "cursor": first["next_cursor"]}),
            422,
            "invalid_argument",
            "cursor",
        )


def test_what_the_clock_lets_us_infer_is_inferred_as_of_then(clock: Clock, api: Api) -> None:
    end = clock.ms + 5
    memory_id = api.add("valid for a while", valid_until=end)["memory"]["memory_id"]
    path = f"/brain/memory/{memory_id}"
    clock.ms += 10
    assert api.memory(memory_id)["speculate"] is not None
    assert api.memory(memory_id, as_of=end - 1)["speculate"] is None
    assert api.memory(memory_id, as_of=end)["speculate"] is not None
    assert api.list(as_of=end - 1)["memories"][0]["speculate"] is None
    assert api.memory(memory_id, as_of=10**13)["speculate"] is not None  # the future is not known
    tags = [api.get(path, params={"as_of": at}).headers["etag"] for at in (end - 1, end)]
    assert tags[0] != tags[1]
    same = api.get(path, params={"as_of": end}, headers={"If-None-Match": tags[1]})
    assert same.status_code == 304


def test_a_purged_memory_was_never_there(clock: Clock, api: Api) -> None:
    memory_id = api.add("text")["memory"]["memory_id"]
    then = clock.ms
    clock.ms += 1
    succeeded(api.post("/brain/purge", {"memory_id": memory_id}))
    answer = api.get(f"/brain/memory/{memory_id}", params={"as_of": then})
    assert answer.status_code in (404, 410) and "text" not in answer.json()["detail"]
    assert api.list(as_of=then)["memories"] == []


@pytest.mark.parametrize("bad", ["yesterday", "1.5", "1e3", str(10**15), "", "null"])
def test_a_time_that_is_none_is_refused(api: Api, bad: str) -> None:
    memory_id = api.add("text")["memory"]["memory_id"]
    for path in (f"/brain/memory/{memory_id}", "/brain/memory"):
        refused(api.get(path, params={"as_of": bad}), 422, "invalid_argument", "as_of")


def test_a_foreign_memory_is_not_found_at_any_time(clock: Clock, api: Api) -> None:
    memory_id = api.of(user="mine").add("text")["memory"]["memory_id"]
    for stranger in (api.of(user="other"), api.of(agent=fresh())):
        answer = stranger.get(f"/brain/memory/{memory_id}", params={"as_of": clock.ms})
        refused(answer, 404, "memory_not_found")
        assert stranger.list(as_of=clock.ms)["memories"] == []
