"""The fixed vocabularies of a memory: layer, kind and lifecycle status. Five axes are kept apart
(kind, layer, status, tier, authority); none is ever derived from another."""

from typing import Literal, get_args

Layer = Literal[
    "l0_basic_info",
    "l1_raw",
    "l2_fact",
    "l3_summary",
    "l4_identity",
    "l5_knowledge",
    "l6_schema",
    "l7_intention",
]
Kind = Literal["memory", "message", "observation", "session_summary"]
Status = Literal[
    "active",
    "superseded",
    "conflicted",
    "negated",
    "archived",
    "quarantined",
    "forgotten",
    "purged",
]

LAYERS: tuple[Layer, ...] = get_args(Layer)
KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)

# A memory with one of these shows its text to nobody; every other status is readable by id.
HIDDEN: frozenset[Status] = frozenset({"forgotten", "purged"})
