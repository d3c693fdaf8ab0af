"""Memories that move to another session, position or time. What they leave nobody else may ever have."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, select, update

from models.errors import PositionTaken
from models.memory import Memory
from models.transfer import Seat
from stores.history_schema import VACATED, vacated
from stores.insertion import is_taken
from stores.schema import memories
from stores.writer import Transaction

# Fields of the record itself that may be said anew.
MOVABLE = ("session_id", "session_key", "session_position", "origin_id", "memory_at")


def move(transaction: Transaction, memory: Memory, moved: Memory) -> None:
    """Let the record say where and when the memory is from as `moved` does. Raises PositionTaken."""
    _reseat(transaction, memory, moved)
    columns = {name: new for name in MOVABLE if (new := getattr(moved, name)) != getattr(memory, name)}
    if columns:
        this = memories.c.memory_id == memory.memory_id
        transaction.execute(update(memories).where(this).values(columns))


def _reseat(transaction: Transaction, memory: Memory, moved: Memory) -> None:
    """Leave a position for ever and take the other one. Raises PositionTaken."""
    before, after = seat_of(memory), seat_of(moved)
    if before == after:
        return
    if after is not None:
        own = (
            (vacated.c.memory_id == memory.memory_id)
            & (vacated.c.session_key == after.session_key)
            & (vacated.c.session_position == after.session_position)
        )
        transaction.execute(delete(vacated).where(own))  # it may come back to where it was
        if is_taken(transaction, memory.partition, after.session_key, after.session_position):
            raise PositionTaken(f"session_position {after.session_position} of this session is taken.")
    if before is not None:
        vacate(transaction, memory, [before])


def vacate(transaction: Transaction, memory: Memory, seats: Iterable[Seat]) -> None:
    """Keep what a memory has left; nothing happens where that is known, of it or of another one."""
    for seat in seats:
        values = memory.partition._asdict() | {"session_key": seat.session_key}
        if transaction.scalar(VACATED, values | {"position": seat.session_position}) is None:
            row = values | {"session_position": seat.session_position, "memory_id": memory.memory_id}
            transaction.insert(vacated, [row])


def vacated_by(connection: Connection, ids: Sequence[str]) -> dict[str, list[Seat]]:
    """What some memories have left, in an order of its own."""
    columns = (vacated.c.memory_id, vacated.c.session_key, vacated.c.session_position)
    query = select(*columns).where(vacated.c.memory_id.in_(ids)).order_by(*columns)
    found: defaultdict[str, list[Seat]] = defaultdict(list)
    for memory_id, session, position in connection.execute(query):
        found[memory_id].append(Seat(session_key=session, session_position=position))
    return found


def seat_of(memory: Memory) -> Seat | None:
    """Where a memory stands; None for one without a place in a session."""
    if memory.session_key is None or memory.session_position is None:
        return None
    return Seat(session_key=memory.session_key, session_position=memory.session_position)
