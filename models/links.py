"""How two memories may be linked."""

from typing import Literal, get_args

EdgeType = Literal[
    "next",
    "in_session",
    "supersedes",
    "derived_from",
    "evidence_for",
    "conflicts_with",
    "same_origin",
    "asserts",
    "updates",
    "explains",
    "related",
]
# Those that a caller may set and take away; the others follow from what was written.
LinkType = Literal["related", "updates", "explains", "evidence_for", "derived_from"]

LINK_TYPES: tuple[LinkType, ...] = get_args(LinkType)
