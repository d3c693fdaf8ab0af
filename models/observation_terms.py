"""What the inputs of the observations view are made of: ids, times in epoch seconds, texts, and what a
summary of a topic covers."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from models.provenance import Covered
from models.requests import MAX_CONTENT_BYTES, Request, not_blank

MAX_IDS = 500  # different ones in one call
TOO_LATE = 10**10  # epoch seconds from here on are milliseconds by mistake
_INT64 = 2**63
_LATE = "must be epoch seconds, under 10,000,000,000: it looks like milliseconds"


def _seconds(value: int) -> int:
    if value >= TOO_LATE:
        raise ValueError(_LATE)
    return value


def _distinct(ids: list[int]) -> list[int]:
    distinct = sorted(set(ids))
    if len(distinct) > MAX_IDS:
        raise ValueError(f"must be at most {MAX_IDS} different ones; ask for the others in another call")
    return distinct


def of_path(value: Any) -> Any:
    """A path has texts only."""
    digits = isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit()
    return int(value) if digits and len(value) <= 20 else value


def folded(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def joined_parts(request: Request, names: tuple[str, ...]) -> str:
    """The texts of the fields that say something, each on lines of its own."""
    parts: list[str] = []
    for name in names:
        value = getattr(request, name)
        parts += value if isinstance(value, list) else [] if value is None else [value]
    return "\n".join(part for part in parts if part.strip())


def check_parts(text: str, names: tuple[str, ...]) -> None:
    if not text:
        raise ValueError(f"give at least one of {', '.join(names)} with words in it")
    if len(text.encode("utf-8")) > MAX_CONTENT_BYTES:
        raise ValueError(f"{', '.join(names)} must be at most {MAX_CONTENT_BYTES} bytes of UTF-8 together")


Id = Annotated[int, Field(ge=-_INT64, lt=_INT64)]
Ids = Annotated[list[Id], Field(max_length=10_000), AfterValidator(_distinct)]
Epoch = Annotated[
    int,
    Field(ge=-62_135_596_800, json_schema_extra={"maximum": TOO_LATE - 1}),
    AfterValidator(_seconds),
]
Text = Annotated[str | None, Field(max_length=MAX_CONTENT_BYTES)]
Lines = Annotated[list[Annotated[str, Field(max_length=8_192)]], Field(max_length=256)]
Paths = Annotated[list[Annotated[str, Field(min_length=1, max_length=4_096)]], Field(max_length=1_024)]
Project = Annotated[str | None, Field(max_length=1024)]
Named = Annotated[str | None, Field(min_length=1, max_length=256)]
MemoryType = Annotated[str, BeforeValidator(folded), Field(min_length=1, max_length=64)]


class Coverage(Request):
    """What a summary of a topic covers: it becomes a segment in the trace of its topic."""

    topic_key: Annotated[
        Named,
        AfterValidator(lambda key: key if key is None else not_blank(key)),
        Field(description="The topic; the same project and key belong together."),
    ] = None
    covered_from_event_id: Annotated[
        int | None, Field(ge=0, lt=_INT64, description="Id of the first message that it sums up.")
    ] = None
    covered_to_event_id: Annotated[
        int | None, Field(ge=0, lt=_INT64, description="Id of the last message that it sums up.")
    ] = None
    segment_index: Annotated[
        int | None, Field(ge=0, lt=2**53, description="Its place among the topic's segments; default next.")
    ] = None
    evidence_event_ids: Annotated[
        list[Annotated[int, Field(ge=0, lt=_INT64)]],
        Field(max_length=1_024, description="Ids of the messages that it rests on.", default_factory=list),
    ]

    @model_validator(mode="after")
    def _covers_a_range(self) -> "Coverage":
        first, last = self.covered_from_event_id, self.covered_to_event_id
        if (first is None) != (last is None):
            raise ValueError("covered_from_event_id and covered_to_event_id go together")
        if first is None and (self.segment_index is not None or self.evidence_event_ids):
            raise ValueError("segment_index and evidence_event_ids go with covered_from_event_id")
        if first is not None and self.topic_key is None:
            raise ValueError("covered_from_event_id needs topic_key")
        if first is not None and last is not None and last < first:
            raise ValueError("covered_to_event_id must not be before covered_from_event_id")
        return self


def coverage_of(request: Coverage) -> Covered | None:
    """What it covers, if it says so."""
    first, last = request.covered_from_event_id, request.covered_to_event_id
    if first is None or last is None:
        return None
    return Covered(first, last, request.segment_index or 0, tuple(request.evidence_event_ids))
