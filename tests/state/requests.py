"""What the state machine asks for: few names and few texts, so that they meet."""

from typing import Any

from hypothesis import strategies as st

from tests.state.brains import caller
from tests.state.model import INVALID, Request

LONG = " ".join(f"word{number}" for number in range(260))  # of several chunks
TEXTS = [
    "amber fox",
    "AMBER \u200b Fox",
    "birch",
    "cobalt ember",
    "delta-42 gate",
    "北京天气",
    "ünïcode 🧠",
    LONG,
]

callers = st.builds(caller, st.sampled_from([None, "u", "v"]), st.sampled_from(["a", "b"]))
texts = st.sampled_from(TEXTS)
tags = st.lists(st.sampled_from(["red", "green", "blue"]), max_size=2, unique=True)
sessions = st.sampled_from(["s", "t"])
keys = st.none() | st.sampled_from(["k1", "k2", "k3"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Request]:
    return st.fixed_dictionaries({"content": texts}, optional=fields)


memories = some(
    layer=st.sampled_from(["l0_basic_info", "l2_fact", "l7_intention", INVALID]),
    tags=tags,
    metadata=st.dictionaries(
        st.sampled_from(["a", "b"]), st.integers() | st.text(max_size=5), max_size=2
    ).filter(lambda value: all(not isinstance(v, int) or abs(v) < 2**63 for v in value.values())),
    frame=st.sampled_from(["team", "private"]),
    on_duplicate=st.sampled_from(["merge", "keep", "error"]),
    source_authority=st.sampled_from(["policy", "team"]),
)
seated = st.builds(
    lambda request, session, position: {**request, "session_id": session, "session_position": position},
    some(kind=st.sampled_from(["memory", "message"]), on_duplicate=st.sampled_from(["merge", "keep"])),
    sessions,
    st.integers(0, 6),
)
messages = st.builds(
    lambda request, session: {**request, "kind": "message", "session_id": session},
    some(actor=st.sampled_from(["Melanie", "Tom"])),
    sessions,
)
conversations = st.builds(
    lambda turns, session: {
        "messages": [{"role": "user", "content": turn} for turn in turns],
        "session_id": session,
    },
    st.lists(texts, min_size=1, max_size=4),
    sessions,
)
successors = some(
    layer=st.sampled_from(["l0_basic_info", "l2_fact"]),
    tags=tags,
    frame=st.sampled_from(["team"]),
    source_authority=st.sampled_from(["policy", "team"]),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "content": texts,
        "tags": tags,
        "metadata": st.dictionaries(st.just("a"), st.integers(0, 3), max_size=1),
        "frame": st.none() | st.just("team"),
    },
).filter(bool)
adds = memories | seated | messages | conversations
