"""One path for every call, through whichever door: right, validation, use case, answer or error."""

import asyncio
import time
from typing import Any

import structlog

from models.answers import Reply
from models.errors import BrainError, Forbidden, InternalError
from models.scope import Caller
from service import audit
from service.brain import Brain
from service.operations import LONG_BODY, Operation
from service.validation import validate

log = structlog.get_logger()


async def run(
    brain: Brain, operation: Operation[Any], caller: Caller, arguments: Any, *, texts: bool = False
) -> Reply:
    """Run an operation. Never raises: a refusal or a fault is the reply's problem document.

    `arguments` is a JSON value; with `texts` it came from a query string, where numbers are texts.
    """
    started = time.perf_counter()
    try:
        try:
            if operation.right not in caller.rights:
                raise Forbidden(f"{operation.name} needs the right '{operation.right}'.")
            if operation.route.max_body > LONG_BODY:  # it may take seconds: not on the event loop
                request = await asyncio.to_thread(validate, operation.input, arguments, texts=texts)
            else:
                request = validate(operation.input, arguments, texts=texts)
            reply = await operation.run(brain, caller, request)
        except BrainError as refusal:
            await audit.record_refusal(brain, operation, caller, arguments, refusal)
            document = refusal.document(caller.request_id)
            return Reply(document, refusal.status, retry_after=refusal.retry_after)
    except Exception as bug:
        log.exception("operation failed", operation=operation.name, request_id=caller.request_id)
        error = InternalError(f"{operation.name} failed: {type(bug).__name__}.")
        return Reply(error.document(caller.request_id), error.status)
    body = reply.body
    if operation.timed:
        body["elapsed_ms"] = int((time.perf_counter() - started) * 1e6) / 1000
        body["request_id"] = caller.request_id
    status = reply.status or operation.route.status
    return Reply(body, status, reply.etag, reply.retry_after)  # `_replace` takes five times as long
