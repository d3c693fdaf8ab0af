"""What a key may be: its rights, its bounds, and what is asked for when one is made."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from models.authority import Authority
from models.requests import Request

Right = Literal["read", "write", "admin"]

RIGHTS: tuple[Right, ...] = get_args(Right)
LONGEST_MS = 100 * 365 * 86_400_000  # a century; also keeps the sums inside 64 bits


def _ordered(rights: list[Right]) -> list[Right]:
    return [right for right in RIGHTS if right in rights]


Name = Annotated[
    str, Field(pattern=r"^[\x20-\x7e]{1,128}$", description="1 to 128 printable ASCII characters.")
]


class NewKey(Request):
    """A key for one product. Without an agent it serves all agents of the product."""

    product: Name
    agent: Name | None = None
    rights: Annotated[
        list[Right],
        Field(min_length=1, max_length=3, default_factory=lambda: ["read", "write"]),
        AfterValidator(_ordered),
    ]
    authority: Annotated[
        Authority, Field(description="The highest source_authority that its writes may claim.")
    ] = "official"
    acts_for_user: Annotated[
        bool, Field(description="A person stands behind its calls, not only an agent.")
    ] = False
    expires_in_ms: Annotated[int | None, Field(ge=1, le=LONGEST_MS)] = None
