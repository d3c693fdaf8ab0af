"""What an informal key tries against policy memories, by both doors: none of it succeeds, and each attempt
that was refused is in the audit log."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME, OPERATIONS
from tests.keyed import Keyed, keyed_server
from tests.serving import JSON, Api, eventually, fresh, succeeded

RULE = "Production keys are never shared with anybody outside the company."
DENIAL = "Production keys may be shared with anybody who asks for them."
FACT = {"subject": "production keys", "predicate": "may be shared", "single_valued": True}
DENIED = [FACT | {"object": "yes"}]
QUERY = "May production keys be shared?"
RANKINGS = ("balanced", "trusted", "recent")
UNDENIED = RANKINGS[:2]  # nothing says that the texts contradict each other, and whoever asks wants new ones
FUTURE = 4_000_000_000_000
# Of the policy memory. Its place in a chain may show what was filed under it, and nothing else.
KEPT = set(
    "memory_id content layer status is_latest superseded_by tags custom user_id agent_id memory_at "
    "gmt_created speculate confidence source_authority source_raw_memory_id".split()
)


class Attack:
    """A product with a policy memory, what rests on it, and an informal key, by HTTP or MCP."""

    def __init__(self, keyed: Keyed, by_mcp: bool):
        product = fresh("product")
        every = ["read", "write", "admin"]
        self.owner = keyed.holder(product, rights=every, authority="policy")
        self.made = keyed.create(product, authority="informal")
        self.informal = keyed.bearing(self.made["credential"])
        self.url = f"{keyed.server.owner.url}/mcp"
        self.by_mcp = by_mcp
        self.rule = self.add(self.owner, RULE, source_authority="policy", facts=[FACT | {"object": "no"}],
                             memory_at=1_000_000, tags=["rule"])  # fmt: skip
        self.aside = self.add(self.owner, "Lunch is at noon.")
        self.before = self.owner.memory(self.rule)
        self.refusals: list[str] = []

    def add(self, api: Api, content: str, **fields: Any) -> str:
        memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
        return memory_id

    def try_to(self, name: str, **arguments: Any) -> JSON:
        """Call as the informal key."""
        if self.by_mcp:
            status, body = asyncio.run(self._over_mcp(name, arguments))
        else:
            route = BY_NAME[name].route
            rest = {key: one for key, one in arguments.items() if "{" + key + "}" not in route.path}
            options: JSON = {"params": rest} if route.method in ("GET", "DELETE") else {"body": rest}
            answer = self.informal.request(route.method, route.path.format(**arguments), **options)
            status, body = answer.status_code, answer.json()
        if status >= 400:
            self.refusals.append(name)
        return body | {"http": status}

    async def _over_mcp(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        headers = {"authorization": f"Bearer {self.made['credential']}"}
        async with (
            httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            result = await client.call_tool(name, arguments)
        assert result.structured_content is not None
        body = dict(result.structured_content)
        return body.get("status", 500) if result.is_error else 200, body

    def check(self, refused: int | None = None, rankings: tuple[str, ...] = RANKINGS) -> None:
        """The policy memory reads as before and is the first answer; the refusals are in the log."""
        after = self.owner.memory(self.rule)
        assert {name: after[name] for name in KEPT} == {name: self.before[name] for name in KEPT}
        for ranking in rankings:
            hits = self.owner.search(QUERY, ranking=ranking)["results"]
            assert hits[0]["memory_id"] == self.rule, ranking
        assert refused is None or len(self.refusals) == refused, self.refusals
        entries = succeeded(self.owner.get("/brain/audit", params={"refused": True, "limit": 100}))["entries"]
        logged = [one["action"] for one in entries if one["key_id"] == self.made["key_id"]]
        assert sorted(logged) == sorted(self.refusals)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed_server(tmp_path_factory.mktemp("attacks"), mcp={"toolsets": list(TOOLSETS)}) as running:
        eventually(lambda: running.server.brain.meaning.fingerprint() is not None)
        running.create("first")
        yield running


@pytest.fixture(params=["http", "mcp"])
def attack(keyed: Keyed, request: pytest.FixtureRequest) -> Attack:
    return Attack(keyed, request.param == "mcp")


def test_to_claim_a_higher_authority_is_refused(attack: Attack) -> None:
    for name, more in (
        ("brain_memory_add", {}),
        ("brain_memory_add", {"memory_at": FUTURE, "facts": DENIED}),
        ("brain_memory_supersede", {"supersedes": [attack.rule]}),
    ):
        answer = attack.try_to(name, content=DENIAL, source_authority="policy", **more)
        assert (answer["http"], answer["code"]) == (403, "authority_not_allowed")
    attack.check(refused=3)


def test_to_supersede_opens_a_conflict_that_the_policy_stands_above(attack: Attack) -> None:
    for name in ("brain_memory_supersede", "brain_memory_add"):
        answer = attack.try_to(name, content=f"{DENIAL} {name}", supersedes=[attack.rule], memory_at=FUTURE)
        assert answer["memory"]["status"] == "conflicted" and answer["superseded"] == []
    attack.check(refused=0)


@pytest.mark.parametrize("more", [
    {}, {"memory_at": FUTURE}, {"memory_at": 0}, {"frame": "other"}, {"layer": "l1_raw"},
    {"layer": "l4_identity"}, {"valid_from": 0, "valid_until": FUTURE}, {"confidence": 1.0},
    {"on_duplicate": "keep"},
])  # fmt: skip
def test_to_deny_its_fact_changes_nothing_about_it(attack: Attack, more: JSON) -> None:
    answer = attack.try_to("brain_memory_add", content=DENIAL, facts=DENIED, **more)
    assert answer["superseded"] == []
    # Filed under it, beside it in a frame of its own or as what was said; never in its place.
    assert answer["memory"]["status"] in ("conflicted", "superseded") or more.keys() & {"frame", "layer"}
    attack.check(refused=0)


def test_to_change_hide_negate_or_relabel_it_is_refused(attack: Attack) -> None:
    id = {"memory_id": attack.rule}
    attempts: list[tuple[str, JSON]] = [
        ("brain_memory_update", id | {"content": DENIAL}),
        ("brain_memory_update", id | {"content": DENIAL, "facts": DENIED}),
        *[
            ("brain_memory_update", id | change)
            for change in (
                {"tags": ["obsolete"]}, {"metadata": {"obsolete": True}}, {"valid_until": 1},
                {"valid_from": FUTURE},
                {"frame": "nowhere"}, {"confidence": 0.0},
            )
        ],
        ("brain_memory_delete", id),
        ("brain_memory_delete", id | {"mode": "archive"}),
        *[("brain_memory_feedback", id | {"verdict": said}) for said in ("wrong", "outdated", "confirmed")],
        ("brain_purge", id),
        ("brain_memory_link", {"from_id": attack.aside, "type": "evidence_for", "to_id": attack.rule}),
        ("brain_memory_link", {"from_id": attack.rule, "type": "derived_from", "to_id": attack.aside}),
    ]  # fmt: skip
    for name, arguments in attempts:
        answer = attack.try_to(name, **arguments)
        assert answer["http"] == 403, (name, arguments, answer)
    attack.check(refused=len(attempts))


def test_an_equal_text_leaves_the_labels_of_the_policy_alone(attack: Attack) -> None:
    answer = attack.try_to("brain_memory_add", content=RULE, tags=["obsolete"], evidence_ids=[attack.aside])
    assert answer["deduplicated"] is False and answer["memory"]["memory_id"] != attack.rule
    attack.check(refused=0, rankings=UNDENIED)
    assert attack.owner.memory(attack.rule, include="details")["details"]["evidence_ids"] == []


def test_to_decide_a_conflict_against_it_is_refused(attack: Attack) -> None:
    low = attack.try_to("brain_memory_add", content=DENIAL, facts=DENIED)
    [conflict_id] = low["conflicts"]
    for adopted in (low["memory"]["memory_id"], None):
        answer = attack.try_to("brain_conflict_resolve", conflict_id=conflict_id, adopted=adopted)
        assert (answer["http"], answer["code"]) == (403, "authority_not_allowed")
    attack.check(refused=2)


def test_to_delete_a_head_that_somebody_put_above_it_revives_nothing(attack: Attack) -> None:
    low = attack.try_to("brain_memory_add", content="Keys are shared on Mondays.", facts=DENIED)
    head = low["memory"]["memory_id"]
    resolved = {"adopted": head, "reason": "The board decided so."}
    succeeded(attack.owner.post(f"/brain/conflicts/{low['conflicts'][0]}/resolve", resolved))
    answer = attack.try_to("brain_memory_delete", memory_id=head, revive=True)
    assert answer["http"] == 403
    assert attack.owner.memory(attack.rule)["status"] == "superseded"


def test_a_chain_of_derived_memories_gains_no_authority(attack: Attack) -> None:
    raw = attack.try_to("brain_memory_add", content="I say keys may be shared.", layer="l1_raw")
    source = raw["memory"]["memory_id"]
    said = attack.add(attack.owner, "As they say, keys are shared.", source_raw_memory_id=source,
                      source_authority="policy")  # fmt: skip
    summary = attack.add(attack.owner, "In sum keys are shared.", layer="l3_summary", evidence_ids=[said],
                         source_authority="policy")  # fmt: skip
    for memory_id in (said, summary):
        assert attack.owner.memory(memory_id)["source_authority"] == "informal"
    fields: JSON = {"content": DENIAL, "layer": "l6_schema", "evidence_ids": [attack.rule], "facts": DENIED}
    assert attack.try_to("brain_memory_add", **fields)["memory"]["source_authority"] == "informal"
    attack.check(refused=0, rankings=UNDENIED)


def test_to_take_the_ground_from_under_it_needs_what_it_rests_on(attack: Attack) -> None:
    """Nothing informal can be put under it; so there is nothing to take away."""
    own = attack.try_to("brain_memory_add", content="Keys are secret since 1999.")["memory"]["memory_id"]
    link = attack.try_to("brain_memory_link", from_id=own, type="evidence_for", to_id=attack.rule)
    assert link["http"] == 403
    assert attack.try_to("brain_memory_delete", memory_id=own)["http"] == 200
    attack.check(refused=1)
    assert attack.owner.memory(attack.rule, include="details")["details"]["fallen"] == []


def test_many_denials_leave_the_policy_first(attack: Attack) -> None:
    items = [
        {"content": f"{DENIAL} Number {n}.", "facts": DENIED, "session_id": f"s{n}", "memory_at": FUTURE + n}
        for n in range(100)
    ]
    answer = attack.try_to("brain_memory_add_batch", items=items)
    assert {one["memory"]["status"] for one in answer["results"]} == {"conflicted"}
    attack.check(refused=0)
    details = attack.owner.memory(attack.rule, include="details")["details"]
    assert len(details["conflicts"]) == 64, "it names some, however many there are"
    assert succeeded(attack.owner.get("/brain/conflicts"))["total"] == 100


@pytest.mark.parametrize("sessions", [1, 200])
def test_two_hundred_copies_of_a_text_take_one_place(attack: Attack, sessions: int) -> None:
    items = [{"content": DENIAL, "kind": "message", "session_id": f"s{n % sessions}"} for n in range(200)]
    items += [{"content": DENIAL, "on_duplicate": "keep"} for _ in range(5)]
    attack.try_to("brain_memory_add_batch", items=items)
    hits = attack.owner.search(QUERY, limit=100)["results"]
    assert attack.rule in [hit["memory_id"] for hit in hits[:2]], "above or beneath the one, by its words"
    assert [hit["content"] for hit in hits].count(DENIAL) == 1


def test_to_suppress_it_hides_it_from_nobody(attack: Attack) -> None:
    """Neither what is there, nor what is written later; what the key may change itself it may hide."""
    own = attack.add(attack.informal, "A note about production keys.")
    for target in ("pattern:production keys", "entity:Production Keys"):
        assert attack.try_to("suppress_memory", target=target)["http"] in (200, 201)
    later = attack.add(attack.owner, "Production keys are changed each year.", source_authority="policy")

    def seen() -> set[str]:
        asked = {"query": "production keys", "source": "memory"}
        return {hit["memory_id"] for hit in _called(attack.owner, "search_observations", asked)["results"]}

    assert {attack.rule, later} <= seen() and own not in seen()
    number = attack.owner.memory(attack.rule, include="details")["details"]["number"]
    refused = attack.try_to("suppress_memory", target=f"memory:{number}")
    assert (refused["http"], refused["code"]) == (403, "authority_not_allowed")
    attack.check(refused=1)
    assert _called(attack.owner, "suppress_memory", {"target": "pattern:production keys"})["changed"] is True
    assert seen() == set(), "who may change them may hide them, also by what another hid less with"


def _called(api: Api, name: str, arguments: JSON) -> JSON:
    route = BY_NAME[name].route
    options: JSON = {"params": arguments} if route.method in ("GET", "DELETE") else {"body": arguments}
    return succeeded(api.request(route.method, route.path, **options))


def _attempts(attack: Attack) -> list[tuple[str, JSON]]:
    """Each operation that may write, aimed at the policy memory, at what the owner observed and decided, and
    at what they rest on."""
    own = attack.add(attack.informal, "Keys are secret, they say.")
    partner = attack.add(attack.informal, DENIAL, facts=DENIED)
    [conflict] = attack.informal.memory(partner, include="conflicts")["conflicts"]
    seen: JSON = {"type": "decision", "title": "Keys are never shared"}
    observed = _called(attack.owner, "add_observation", seen)
    session: JSON = {"host": "claude-code", "session_id": "s"}
    summed = _called(attack.owner, "add_session_summary", session | {"request": "Keys"})
    number = attack.owner.memory(attack.rule, include="details")["details"]["number"]
    rule: JSON = {"id": attack.rule}
    why: JSON = rule | {"reason": "It is old."}
    named: JSON = {"memory_id": attack.rule}
    link: JSON = {"from_id": own, "type": "evidence_for", "to_id": attack.rule}
    leak = attack.add(attack.owner, "Keys leaked once.", source_authority="policy")
    succeeded(attack.owner.request("PUT", f"/brain/links/{leak}/evidence_for/{attack.rule}"))
    said: JSON = {"role": "user", "content": DENIAL}
    return [
        ("brain_memory_add", {"content": DENIAL, "source_authority": "policy"}),
        ("brain_memory_add_batch", {"items": [{"content": DENIAL, "supersedes": [attack.rule]}]}),
        ("brain_memory_update", named | {"tags": []}),
        ("brain_memory_supersede", {"content": DENIAL, "supersedes": [attack.rule]}),
        ("brain_memory_delete", named),
        ("brain_memory_restore", named),
        ("brain_memory_link", link),
        ("brain_memory_unlink", link | {"from_id": leak}),
        ("brain_conflict_resolve", {"conflict_id": conflict["conflict_id"], "adopted": partner}),
        ("brain_memory_feedback", named | {"verdict": "wrong"}),
        ("add_observation", {"type": "decision", "title": DENIAL}),
        (
            "compress_observations",
            {"ids": [observed["id"]], "replacement": seen},
        ),
        ("set_session_label", {"id": summed["id"], "topic": "Sharing"}),
        ("add_session_summary", session | {"request": DENIAL}),
        ("save_memory", {"text": DENIAL}),
        ("govern_memory", {"ids": [number], "action": "stale"}),
        ("suppress_memory", {"target": f"memory:{number}"}),
        ("unsuppress_memory", {"target": f"memory:{number}"}),
        ("add_raw_messages", {"host": None, "project": "p", "session_id": "s", "messages": [said]}),
        ("ingest_transcript", session | {"content": "{"}),
        ("remember", {"content": DENIAL}),
        *((name, why) for name in ("promote", "pin", "unpin", "flag_sensitive", "forget", "restore")),
        ("corroborate", rule | {"memory_id": partner}),
        ("retract_corroboration", why | {"memory_id": own}),
        ("review", rule | {"verdict": "challenge", "note": "No."}),
        ("mark_conflict", {"a": attack.rule, "b": own, "reason": "It denies it."}),
        ("resolve_conflict", {"id": conflict["conflict_id"], "adopted": partner, "reason": "It is right."}),
        ("set_frame", rule | {"frame": "elsewhere"}),
        ("set_history_context", rule | {"source": "Mallory"}),
    ]


# What only writes something of the key's own, or opens a conflict, which the policy stands above; and what
# changes observations and summaries, which are informal whoever writes them.
HARMLESS = set(
    "brain_memory_add_batch brain_memory_supersede add_observation compress_observations set_session_label "
    "add_session_summary save_memory unsuppress_memory add_raw_messages ingest_transcript remember "
    "mark_conflict".split()
)


def test_no_operation_that_writes_does_anything_to_it(attack: Attack) -> None:
    attempts = _attempts(attack)
    assert {name for name, _ in attempts} == {one.name for one in OPERATIONS if one.right == "write"}
    for name, arguments in attempts:
        answer = attack.try_to(name, **arguments)
        if name in HARMLESS:
            assert answer["http"] < 300, (name, answer)
        else:
            assert answer["http"] in (403, 404), (name, answer)
            assert answer["code"] in ("authority_not_allowed", "memory_not_found"), (name, answer)
    attack.check(refused=len(attempts) - len(HARMLESS), rankings=())
