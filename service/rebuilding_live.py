"""A rebuild inside the server, which goes on serving and taking writes: started, watched and cancelled over
`/internal/rebuild`, with the owner's token."""

import asyncio
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models import verbatim
from models.embedding import Encoder, ModelNotFound
from models.errors import BrainError, ConflictState
from models.rebuild_order import RebuildOrder
from models.scope import Caller
from service.brain import Brain
from service.keys import read_body
from service.rebuilding import Document, Progress, Site, carry_out
from service.responses import document, problem
from service.validation import validate

log = structlog.get_logger()

PATH = "/internal/rebuild"
YIELD_S, YIELDS = 0.01, 20  # how long a run of the model lets queries go first, at the most


class LiveRebuild:
    """The one rebuild of a server. Lives on the event loop."""

    def __init__(self, brain: Brain):
        self._brain = brain
        self._task: asyncio.Task[Document] | None = None
        self._progress = Progress()
        self._action = ""

    def start(self, order: RebuildOrder) -> Document:
        """Begin, and return at once. Raises InvalidArgument, or ConflictState while one is under way."""
        order.check()
        if self._task is not None and not self._task.done():
            raise ConflictState("A rebuild is under way. Watch it with --status, end it with --cancel.")
        self._action, self._progress = order.action, Progress()
        site = self._site()
        self._task = asyncio.create_task(carry_out(site, order, self._progress))
        self._task.add_done_callback(_log_fault)
        return self.status()

    def cancel(self) -> Document:
        """End it, unless it has ended: what serves goes on serving."""
        if self._task is not None:
            self._task.cancel()
        return self.status()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})

    def status(self) -> Document:
        """`state` is idle, running, done, failed or cancelled; `report` is there when it is done."""
        task = self._task
        found: Document = {"action": self._action, **self._progress.document()}
        if task is None:
            return {"state": "idle"}
        if not task.done():
            return {"state": "running", **found}
        if task.cancelled():
            return {"state": "cancelled", **found}
        fault = task.exception()
        if fault is None:
            return {"state": "done", **found, "report": task.result()}
        told = fault.document("") if isinstance(fault, BrainError) else None
        return {"state": "failed", **found, "error": str(fault) or type(fault).__name__, "problem": told}

    def _site(self) -> Site:
        brain = self._brain

        def switched(encoder: Encoder | None, fingerprint: str) -> None:
            brain.meaning.switch(encoder, fingerprint)
            brain.residents.evict_all()
            brain.applier.wake()

        return Site(
            brain.ledger,
            brain.vdb,
            brain.shards,
            brain.settings.embedding.model,
            self._encoder,
            lambda: brain.applier.turn,
            switched,
            self._pause,
        )

    async def _encoder(self, model: str) -> Encoder:
        """The one that is loaded when it is of this model, so that its weights are in memory once."""
        loaded = self._brain.embedder.encoder
        if loaded is not None and model == self._brain.settings.embedding.model:
            return loaded
        if self._brain.load_model is None:
            raise ModelNotFound("this process can load no other model")
        return await asyncio.to_thread(self._brain.load_model, model)

    async def _pause(self) -> None:
        """Let questions and new writes have the processor first, but not for ever."""
        for _ in range(YIELDS):
            if not self._brain.embedder.queue_length:
                return
            await asyncio.sleep(YIELD_S)


def _log_fault(task: "asyncio.Task[Any]") -> None:
    fault = None if task.cancelled() else task.exception()
    if fault is not None:
        log.error("the rebuild failed", exc_info=fault if not isinstance(fault, BrainError) else None)


def routes(rebuild: LiveRebuild) -> list[Route]:
    """The internal route; the gate lets only the owner's token through to it."""

    async def answer(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            if request.method == "DELETE":
                return document(rebuild.cancel())
            if request.method == "GET":
                return document(rebuild.status())
            order = validate(RebuildOrder, verbatim.parse(await read_body(request)))
            return document(rebuild.start(order), 202)
        except BrainError as refusal:
            return problem(refusal, caller.request_id)

    return [Route(PATH, answer, methods=["GET", "POST", "DELETE"])]
