"""What a rebuild asks of a directory that it has filled. Runs in the child process, as `stores.chroma_worker`
does, whose rules hold here."""

from collections.abc import Sequence

import numpy as np

from stores import chroma_worker

OWN = 1e-3  # cosine distance that the memory's own vector may seem to have, by rounding
TIE = 1e-5  # as near as this all texts are the same, and which of them comes first means nothing


@chroma_worker.boundary
def unreached(shard_dir: str, ids: Sequence[str], packed: bytes, k: int) -> list[str]:
    """Those of these memories that a search for their own first vector does not find among the k nearest.
    `packed` are the vectors, float32 of shape (ids, dimensions). Chroma's index can lose live rows
    (chroma-core/chroma 7758): `get` still shows them, no search does."""
    collection = chroma_worker.shards.collection(shard_dir)
    if collection is None:
        return list(ids)
    queries = list(np.frombuffer(packed, np.float32).reshape(len(ids), -1))
    answer = collection.query(query_embeddings=queries, n_results=k, include=["distances"])
    missed = []
    for memory_id, found, distances in zip(ids, answer["ids"], answer["distances"], strict=True):
        own = [
            distance
            for row_id, distance in zip(found, distances, strict=True)
            if row_id.partition("#")[0] == memory_id and distance <= OWN
        ]
        crowded = len(found) == k and distances[-1] <= TIE
        if not own and not crowded:
            missed.append(memory_id)
    return missed
