"""From a JSON value to a typed request, or to an error that names the field and the next move."""

import difflib
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from models import verbatim
from models.errors import FieldError, InvalidArgument, invalid
from models.requests import Request

In = TypeVar("In", bound=Request)

MAX_ERRORS = 20  # a body of a thousand wrong arguments gets an answer that can be read
MAX_NAME = 200


def validate(model: type[In], arguments: Any, *, texts: bool = False) -> In:
    """The typed request, or InvalidArgument that names each field and what to do about it."""
    if not isinstance(arguments, dict):
        raise invalid("body", "must be a JSON object")
    verbatim.check(arguments, skip=model.each_for_itself)
    try:
        return model.__pydantic_validator__.validate_python(arguments, strict=not texts)  # type: ignore[no-any-return]
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:MAX_ERRORS]
        errors = tuple(_field_error(model, e) for e in found)
        detail = "; ".join(f"{e.field}: {e.message}" for e in errors[:3])
        raise InvalidArgument(detail, errors) from None


def _field_error(model: type[Request], error: Any) -> FieldError:
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    field = field[:MAX_NAME]
    *path, name = error["loc"] or ("",)
    within = _model_at(model, path) if error["type"] == "extra_forbidden" else None
    if within is not None:
        near = difflib.get_close_matches(str(name), within.model_fields, n=1, cutoff=0.6)
        known = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(within.model_fields)}"
        return FieldError(field, f"unknown argument; {known}")
    message = error["msg"].removeprefix("Value error, ")
    return FieldError(field or "body", message[0].lower() + message[1:])


def _model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """What an object inside the arguments is an instance of; numbers in the path are places in lists."""
    found: type[BaseModel] | None = model
    for name in path:
        if found is not None and isinstance(name, str):
            field = found.model_fields.get(name)
            found = None if field is None else _model_in(field.annotation)
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, or a list of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
