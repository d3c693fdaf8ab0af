"""JSON that keeps what the writer wrote: key order, integers apart from floats, the digits of a float."""

import json
import math
from typing import Any, NoReturn

import orjson

from models.errors import BadJson, invalid

MAX_DEPTH = 64
_INT64 = range(-(2**63), 2**63)


class Number(float):
    """A float that remembers its digits, so that `2.50` comes back as `2.50`."""

    text: str

    def __new__(cls, text: str) -> "Number":
        number = super().__new__(cls, text)
        number.text = text
        return number


class Repeated(dict[str, Any]):
    """An object in which a key stood twice; `key` names it. Refused by `check`, which knows the path."""

    key: str


def parse(body: bytes) -> Any:
    """The value of a JSON text. Raises BadJson. Call `check` before anything is done with it."""
    try:
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_float=Number,
            parse_int=_integer,
            parse_constant=_refuse,
        )
    except UnicodeDecodeError as error:
        raise BadJson(f"The body is not UTF-8: byte {error.start}.") from error
    except RecursionError as error:
        raise BadJson("The body is nested too deeply.") from error
    except ValueError as error:
        raise BadJson(f"The body is not JSON: {error}.") from error


def dump(value: Any) -> str:
    """The JSON text of a value from `parse`, compact, digits of floats as they were."""
    return orjson.dumps(value, default=digits).decode()


def check(value: Any, path: str = "", depth: int = 0, *, skip: frozenset[str] = frozenset()) -> None:
    """Refuse, by its path, what can't be kept verbatim: a NUL or half a surrogate pair in a text, an
    integer outside int64, a number that is not finite, a repeated key, nesting over 64 levels. What stands
    under the keys of `skip` is not looked at."""
    where = path or "body"
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if value not in _INT64:
            raise invalid(where, "an integer must fit into 64 bits; send larger ones as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise invalid(where, "a number must be finite")
    elif depth >= MAX_DEPTH:
        raise invalid(where, f"nested more than {MAX_DEPTH} levels deep")
    elif isinstance(value, dict):
        if isinstance(value, Repeated):
            raise invalid(f"{path}.{value.key}" if path else value.key, "the key stands twice")
        for key, item in value.items():
            _check_text(key, where)
            if key not in skip:
                inside = f"{path}.{key}" if path else key
                if isinstance(item, str):  # as `check` would; most are, and a call costs more than the rest
                    _check_text(item, inside)
                else:
                    check(item, inside, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check(item, f"{path}[{index}]", depth + 1)


def _check_text(text: str, where: str) -> None:
    if "\0" in text:
        raise invalid(where, "text must not contain the NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise invalid(where, "text must not contain half of a surrogate pair") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    repeated = Repeated(made)
    repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return repeated


def _integer(text: str) -> int | Number:
    return Number(text) if text == "-0" else int(text)  # an int has no negative zero


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def digits(value: Any) -> Any:
    """For orjson's `default`: the digits of a `Number` as they were written."""
    if isinstance(value, Number):
        return orjson.Fragment(value.text)
    raise TypeError(f"not a JSON value: {type(value).__name__}")
