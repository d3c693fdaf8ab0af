"""Which memories come from one text, by the links that say so."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select

from models.memory import Memory
from stores.schema import edges

_holds = (edges.c.type == "derived_from") & edges.c.to_seq.is_(None)
_up = (
    select(edges.c.from_id.label("start"), edges.c.to_id.label("original"))
    .where(_holds, edges.c.from_id.in_(bindparam("ids", expanding=True)))
    .cte("up", recursive=True)
)
# A union that keeps each row once ends where links go round in a circle.
_up = _up.union(select(_up.c.start, edges.c.to_id).where(_holds, edges.c.from_id == _up.c.original))
_ORIGINALS = select(_up.c.start, _up.c.original)


def kin_of(connection: Connection, memory: Memory, ids: Sequence[str]) -> frozenset[str]:
    """Of some memories, at most a few dozen, those of one lineage with another one, which may not be stored
    yet: derived from it, it from them, or both from one original; directly or through others."""
    if not ids:
        return frozenset()
    own = [memory.memory_id, *filter(None, (memory.source_raw_memory_id,))]
    origins = {id: {id} for id in (*own, *ids)}
    for start, original in connection.execute(_ORIGINALS, {"ids": list(origins)}):
        origins[start].add(original)
    roots = set().union(*(origins[id] for id in own))
    return frozenset(id for id in ids if origins[id] & roots)
