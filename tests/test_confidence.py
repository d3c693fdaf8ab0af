"""The formula of confidence: bounded, and monotone in what speaks for a memory and against it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.authority import AUTHORITIES, rank
from models.confidence import appraised, confidence_of, start_of
from models.memory import Memory
from models.provenance import Provenance
from models.sources import independent, source_key
from models.standing import VERDICTS, Standing, Voice
from tests.recalling import memory
from tests.serving import Api
from tests.test_facts import id_of

pytest_plugins = ["tests.serving_fixtures"]

shares = st.none() | st.floats(0, 1)
sources = st.none() | st.sampled_from(["Ann", "ann ", "Bob", "http://x.example/a", "https://x.example/a/"])
statements = st.sampled_from(["stated", "derived", "interpretation"])


def build(authority: Any, statement: str, stated: float | None, actor: str | None) -> Memory:
    provenance = Provenance(tier="interpretation" if statement == "interpretation" else "archive")
    raw = "r" if statement == "derived" else None
    fields: dict[str, Any] = {"stated_confidence": stated, "provenance": provenance}
    return memory("text", source_authority=authority, source_raw_memory_id=raw, actor=actor, **fields)


memories = st.builds(build, st.sampled_from(AUTHORITIES), statements, shares, sources)
voices = st.lists(
    st.builds(Voice, st.sampled_from(VERDICTS), st.sampled_from("abcd")), max_size=8, unique=True
).map(tuple)


def value(
    one: Memory, agreeing: list[Memory], heard: tuple[Voice, ...] = (), contested: bool = False
) -> float:
    standing = Standing(agreements=independent(one, agreeing), voices=heard, contested=contested)
    return confidence_of(replace(one, state=appraised(one, standing))).value


@given(memories, st.lists(memories, max_size=5), memories, voices, st.booleans())
def test_it_is_a_share_and_one_source_more_never_lowers_it(
    one: Memory, agreeing: list[Memory], more: Memory, heard: tuple[Voice, ...], contested: bool
) -> None:
    before = value(one, agreeing, heard, contested)
    assert 0 <= before <= 1
    assert before <= value(one, [*agreeing, more], heard, contested)
    assert not contested or before <= 0.5


@given(memories, st.lists(memories, max_size=4), voices, st.sampled_from(VERDICTS))
def test_praise_never_lowers_it_and_blame_never_raises_it(
    one: Memory, agreeing: list[Memory], heard: tuple[Voice, ...], verdict: Any
) -> None:
    before, after = value(one, agreeing, heard), value(one, agreeing, (*heard, Voice(verdict, "another")))
    assert after >= before if verdict in ("confirmed", "useful") else after <= before


@given(memories, memories, voices)
def test_a_higher_authority_never_has_less_and_doubt_never_gives_more(
    one: Memory, other: Memory, heard: tuple[Voice, ...]
) -> None:
    higher = replace(one, source_authority=max(one.source_authority, other.source_authority, key=rank))
    assert value(higher, [], heard) >= value(one, [], heard)
    certain = replace(one, state=replace(one.state, stated_confidence=None))
    assert start_of(one) <= start_of(certain)


@given(memories, st.lists(memories, min_size=1, max_size=4), st.data())
def test_a_label_written_otherwise_and_a_repost_count_nothing(
    one: Memory, agreeing: list[Memory], data: st.DataObject
) -> None:
    again = data.draw(st.sampled_from(agreeing))
    spelt = None if again.actor is None else again.actor.upper() + "\u200b "
    assert value(one, [*agreeing, replace(again, memory_id="z", actor=spelt)]) == value(one, agreeing)
    repost = replace(again, memory_id="z", actor="Eve", origin_id=again.actor)
    if again.actor is not None:
        assert value(one, [*agreeing, repost]) == value(one, agreeing)
    assert value(one, [*agreeing, replace(one, memory_id="z")]) == value(one, agreeing), "oneself neither"


@given(st.lists(memories, max_size=5), memories)
def test_it_does_not_depend_on_the_order_of_the_sources(agreeing: list[Memory], one: Memory) -> None:
    assert independent(one, agreeing) == independent(one, agreeing[::-1])


@pytest.mark.parametrize(("one", "other"), [
    ("web", "Web"), ("web", "we\u200bb"), ("web", "web/"), ("café", "cafe\u0301"),
    ("http://a.example/x", "https://A.example:443/x/"),
])  # fmt: skip
def test_labels_of_one_source(one: str, other: str) -> None:
    assert source_key(one) == source_key(other)


def test_every_contribution_is_shown(api: Api) -> None:
    ground = api.add("The sign says ten tons.", actor="Ann", source_authority="team")
    above = api.add("The bridge bears ten tons.", actor="Eve", evidence_ids=[id_of(ground)], confidence=0.5)
    got = api.memory(id_of(above), include="details")
    terms = got["details"]["confidence_terms"]
    assert terms == {
        "authority": "informal", "statement": "stated", "stated": 0.5, "start": 0.5,
        "sources": terms["sources"], "agreed": 0.9,
        "feedback": dict.fromkeys(VERDICTS, 0), "heard": 0.9, "contested": False,
    }  # fmt: skip
    [source] = terms["sources"]
    assert (source["memory_id"], source["reliability"]) == (id_of(ground), 0.8)
    assert (got["confidence"], got["details"]["stated_confidence"]) == (0.9, 0.5)


def test_a_source_that_is_doubted_since_counts_for_less(api: Api) -> None:
    ground = api.add("The sign says ten tons.", actor="Ann")
    above = api.add("The bridge bears ten tons.", actor="Eve", evidence_ids=[id_of(ground)])
    assert api.memory(id_of(above))["confidence"] == 0.91
    api.request("PATCH", f"/brain/memory/{id_of(ground)}", {"confidence": 0.1})
    assert api.memory(id_of(above))["confidence"] == 0.73
    api.request("DELETE", f"/brain/memory/{id_of(ground)}")
    assert api.memory(id_of(above))["confidence"] == 0.7
