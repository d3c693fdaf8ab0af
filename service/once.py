"""What writing use cases share: run once for an idempotency key, and show the memory as it stands."""

from typing import Any

from models.answers import MemoryFields
from models.errors import MemoryForgotten
from models.requests import Request
from models.scope import Caller
from service.brain import Brain
from service.fields import memory_fields
from stores.idempotency import Once


async def once(
    brain: Brain, caller: Caller, operation: str, request: Request, write: Any
) -> tuple[Any, bool]:
    """Run a write, or answer what it did when its idempotency key came first."""
    key = getattr(request, "idempotency_key", None)
    if key is None:
        return await brain.write(write), False
    this = Once(operation, key, request.model_dump(exclude={"idempotency_key"}))
    done: tuple[Any, bool] = await brain.write(
        lambda transaction: this.run(transaction, caller, lambda: write(transaction))
    )
    return done


def replayed(again: bool) -> dict[str, Any]:
    """What an answer says of being a repeat: nothing when it is none."""
    return {"replayed": True} if again else {}


def shown(brain: Brain, memory_id: str) -> MemoryFields:
    """A memory as it stands after a write. Raises MemoryForgotten when it was hidden since."""
    found = brain.current([memory_id])
    if not found:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten since.")
    return memory_fields(found[0], "graph", brain.clock())
