"""What may be asked by an agent that works: a context for a question, and what is due to be summed
up."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from models.requests import Request, not_blank


class AssembleContext(Request):
    query: Annotated[
        str,
        Field(min_length=1, max_length=8192, description="The question or task that the context is for."),
        AfterValidator(not_blank),
    ]
    token_budget: Annotated[
        int,
        Field(
            ge=100,
            le=100_000,
            description="Tokens that the block may take at the most, by the tokenizer that is answered.",
        ),
    ] = 1500
    limit: Annotated[
        int, Field(ge=1, le=100, description="How many memories of the profile, and how many found, at most.")
    ] = 20
    ranking: Annotated[
        Literal["balanced", "trusted", "recent"],
        Field(description="What else than relevance counts: authority and confidence, or being new."),
    ] = "balanced"
    profile: Annotated[
        bool, Field(description="Whether to begin with what is known of the user for good.")
    ] = True


class GetConsolidation(Request):
    min_size: Annotated[
        int, Field(ge=2, le=50, description="How many memories make a group worth summing up.")
    ] = 3
    quiet_minutes: Annotated[
        int,
        Field(ge=0, le=525_600, description="A group is due when it has not grown for so long, or is full."),
    ] = 30
    limit: Annotated[int, Field(ge=1, le=50, description="How many groups at the most.")] = 10
    detail: Annotated[
        Literal["concise", "full"], Field(description="`full` adds the memories themselves, with their text.")
    ] = "concise"
