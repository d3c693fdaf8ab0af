"""From a JSON value to a typed request, or to an error that names the field and the next move."""

import difflib
from typing import Any, TypeVar

from pydantic import ValidationError

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
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        near = difflib.get_close_matches(field, model.model_fields, n=1, cutoff=0.6)
        known = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(model.model_fields)}"
        return FieldError(field, f"unknown argument; {known}")
    message = error["msg"].removeprefix("Value error, ")
    return FieldError(field or "body", message[0].lower() + message[1:])
