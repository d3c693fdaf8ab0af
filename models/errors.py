"""Everything that can go wrong for a caller, as one tree.

    BrainError
    ├── BadJson                 400 bad_json
    ├── Unauthenticated         401 unauthenticated
    ├── Forbidden               403 forbidden
    ├── AuthorityNotAllowed     403 authority_not_allowed
    ├── CorroborationRequired   403 corroboration_required
    ├── NoSuchRoute             404 not_found
    ├── MemoryNotFound          404 memory_not_found
    ├── ConflictNotFound        404 conflict_not_found
    ├── ObservationNotFound     404 not_found
    ├── KeyNotFound             404 key_not_found
    ├── MethodNotAllowed        405 method_not_allowed
    ├── IdempotencyKeyReused    409 idempotency_key_reused
    ├── PositionTaken           409 position_taken
    ├── Duplicate               409 duplicate
    ├── ConflictState           409 conflict_state
    │   └── NotConsolidated     409 conflict_state
    ├── ImmutableLayer          409 immutable_layer
    ├── LowerAuthority          409 lower_authority
    ├── MemoryForgotten         410 memory_forgotten
    ├── VersionConflict         412 version_conflict
    ├── TooLarge                413 too_large
    ├── InvalidArgument         422 invalid_argument
    ├── EvidenceRequired        422 evidence_required
    ├── UnsupportedSource       422 unsupported_source
    ├── RateLimited             429 rate_limited        (retryable)
    ├── StoreUnavailable        503 store_unavailable   (retryable)
    └── InternalError           500 internal_error      (a bug of ours, never of the caller's input)

Each class has the HTTP status, a stable `code`, whether the same call may succeed later, and a `hint`
with the caller's next move. MCP answers carry the same document.
"""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One offending argument: its dotted name and what is wrong with it."""

    field: str
    message: str


class BrainError(Exception):
    """A refusal that the caller can understand and act on."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    hint: ClassVar[str] = "Quote the request_id when you report this."

    def __init__(self, detail: str, errors: tuple[FieldError, ...] = (), retry_after: int | None = None):
        super().__init__(detail)
        self.detail = detail
        self.errors = errors
        self.retry_after = retry_after

    def document(self, request_id: str) -> dict[str, Any]:
        """The problem document of RFC 9457, with our members beside the standard ones."""
        return {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "hint": self.hint,
            "retryable": self.retryable,
            "request_id": request_id,
            "errors": [{"field": e.field, "message": e.message} for e in self.errors],
        }


class InternalError(BrainError):
    pass


class BadJson(BrainError):
    status, code, title = 400, "bad_json", "The body is not JSON"
    hint = "Send one JSON object, UTF-8."


class Unauthenticated(BrainError):
    status, code, title = 401, "unauthenticated", "No valid credential"
    hint = "Send Authorization: Bearer brain_<id>_<secret>; `brain keys create` makes such a key."


class Forbidden(BrainError):
    status, code, title = 403, "forbidden", "Not allowed"
    hint = (
        "Use a credential that has what the detail names; without keys, call from this machine, by the "
        "address that the server printed at its start."
    )


class AuthorityNotAllowed(BrainError):
    status, code, title = 403, "authority_not_allowed", "The authority is above what the key may claim"
    hint = "Write with at most the authority that the detail names, or use a key with a higher one."


class CorroborationRequired(BrainError):
    status, code, title = 403, "corroboration_required", "Independent corroboration is needed"
    hint = "Call corroborate with a source that is not the memory's own; `provenance` shows which count."


class NoSuchRoute(BrainError):
    status, code, title = 404, "not_found", "No such route"
    hint = "GET /openapi.json lists every route."


class MemoryNotFound(BrainError):
    status, code, title = 404, "memory_not_found", "No such memory"
    hint = "Find the id with brain_memory_search or brain_memory_list, in the same agent and user."


class ConflictNotFound(BrainError):
    status, code, title = 404, "conflict_not_found", "No such conflict"
    hint = "brain_conflicts lists the open ones with their ids."


class ObservationNotFound(BrainError):
    status, code, title = 404, "not_found", "No such row in this source"
    hint = (
        "Leave the ids that the detail names out, or take id and source from search_observations; a row of "
        "another project or a suppressed one counts as missing."
    )


class KeyNotFound(BrainError):
    status, code, title = 404, "key_not_found", "No such key"
    hint = "`brain keys list` shows every key with its id."


class MethodNotAllowed(BrainError):
    status, code, title = 405, "method_not_allowed", "Method not allowed"
    hint = "Use one of the methods in the Allow header."


class IdempotencyKeyReused(BrainError):
    status, code, title = 409, "idempotency_key_reused", "The idempotency key belongs to another request"
    hint = "Use a new key for a new request; repeat a request with the body that it had first."


class PositionTaken(BrainError):
    status, code, title = 409, "position_taken", "The position in the session is taken"
    hint = "Leave session_position out to append, or choose a free one."


class Duplicate(BrainError):
    status, code, title = 409, "duplicate", "An equal memory exists"
    hint = "Use on_duplicate=merge to unite them, or keep to store a second one."


class ConflictState(BrainError):
    status, code, title = 409, "conflict_state", "The memory's state does not allow it"
    hint = "Read the memory with include=details and act on what the detail names."


class NotConsolidated(ConflictState):
    hint = "Call promote with a reason first; then pin it."


class ImmutableLayer(BrainError):
    status, code, title = 409, "immutable_layer", "What was said can't be changed"
    hint = "Keep the l1_raw memory and add one that corrects it; with `supersedes` where it takes its place."


class LowerAuthority(BrainError):
    status, code, title = 409, "lower_authority", "A lower authority can't replace a higher one"
    hint = (
        "Leave on_conflict out to keep it beside the one that stands, in an open conflict, or write with at "
        "least the authority of that one."
    )


class MemoryForgotten(BrainError):
    status, code, title = 410, "memory_forgotten", "The memory was forgotten"
    hint = "Its text is hidden; search for what replaced it."


class VersionConflict(BrainError):
    status, code, title = 412, "version_conflict", "The memory has changed since you read it"
    hint = "Read it again and decide anew; its version is in details, and in the ETag over HTTP."


class TooLarge(BrainError):
    status, code, title = 413, "too_large", "The body is too large"
    hint = "Split the request; the limit is in the detail."


class InvalidArgument(BrainError):
    status, code, title = 422, "invalid_argument", "An argument is not valid"
    hint = "Mend the arguments named in errors and call again."


class UnsupportedSource(BrainError):
    status, code, title = 422, "unsupported_source", "There is no such source"
    hint = "Use 'memory', 'observation' or 'session_summary', in small letters."


class EvidenceRequired(BrainError):
    status, code, title = 422, "evidence_required", "Evidence is needed"
    hint = "Remember it as archive, then call corroborate with an independent source."


class RateLimited(BrainError):
    status, code, title, retryable = 429, "rate_limited", "Too many requests", True
    hint = "Wait for Retry-After seconds and repeat the call; limits.requests_per_second sets the rate."


class StoreUnavailable(BrainError):
    status, code, title, retryable = 503, "store_unavailable", "The store can't answer now", True
    hint = "Wait for Retry-After seconds and repeat the call, a write with the same idempotency_key."


def invalid(field: str, message: str) -> InvalidArgument:
    """The refusal of one argument, named in the detail too."""
    return InvalidArgument(f"{field}: {message}", (FieldError(field, message),))
