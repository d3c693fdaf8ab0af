"""One peer behind Starlette, in the peers' own environment, with MiniLM, the usual model, for all that embed:

PYTHONPATH=. /tmp/brain-peers/venv/bin/python tests/bench/peer_server.py NAME DIRECTORY     prints its port
"""

import os
import socket
import sys
from typing import Any

os.environ |= {"MEM0_TELEMETRY": "False", "ANONYMIZED_TELEMETRY": "False", "OPENAI_API_KEY": "none"}
os.environ |= {"MEM0_DIR": sys.argv[2]}

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.embedding import DEFAULT_MODEL, EXPORTS, OnnxEncoder
from models.multilingual import TWIN


class Embedder:
    """MiniLM as our server runs it, and as mem0 calls an embedder."""

    def __init__(self) -> None:
        self._encoder = OnnxEncoder(DEFAULT_MODEL, EXPORTS / TWIN)

    def embed(self, text: str, _action: str | None = None) -> list[float]:
        vector: list[float] = self._encoder.encode(self._encoder.chunk(text))[0].vector.tolist()
        return vector


class Chroma:
    """A plain collection: vector and document."""

    def __init__(self, directory: str):
        import chromadb

        self._embedder = Embedder()
        client = chromadb.PersistentClient(directory)
        self._rows = client.create_collection("texts", embedding_function=None)
        self._count = 0

    def add(self, text: str) -> str:
        self._count += 1
        self._rows.add(ids=[f"id-{self._count}"], embeddings=[self._embedder.embed(text)], documents=[text])
        return f"id-{self._count}"

    def search(self, query: str) -> Any:
        return self._rows.query(query_embeddings=[self._embedder.embed(query)], n_results=10)["documents"]

    def get(self, id: str) -> Any:
        return self._rows.get(ids=[id])["documents"]


class Mem0:
    """`infer=False`, the default local Qdrant; no language model is asked anything."""

    def __init__(self, directory: str):
        from mem0 import Memory

        store = {"path": directory, "embedding_model_dims": 384, "on_disk": True}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": f"{directory}/history.db",
            }
        )
        self._memory.embedding_model = Embedder()

    def add(self, text: str) -> str:
        id: str = self._memory.add(text, user_id="u", infer=False)["results"][0]["id"]
        return id

    def search(self, query: str) -> Any:
        return self._memory.search(query, filters={"user_id": "u"}, top_k=10)

    def get(self, id: str) -> Any:
        return self._memory.get(id)


class History:
    """memory-as-history's store. Its search goes by words: its semantic model has to be downloaded."""

    def __init__(self, directory: str):
        from memory_as_history.storage import Store

        self._store = Store(f"{directory}/memory.db")

    def add(self, text: str) -> str:
        id: str = self._store.remember(text).id
        return id

    def search(self, query: str) -> Any:
        return self._store.recall(query, limit=10)

    def get(self, id: str) -> Any:
        return vars(self._store.get(id))


PEERS = {"chroma": Chroma, "mem0": Mem0, "memory-as-history": History}


def main(name: str, directory: str) -> None:
    peer = PEERS[name](directory)

    def answer(value: Any) -> Response:
        return Response(orjson.dumps(value, default=str), media_type="application/json")

    async def add(request: Request) -> Response:
        return answer({"id": peer.add((await request.json())["content"])})

    async def search(request: Request) -> Response:
        return answer(peer.search((await request.json())["query"]))

    async def get(request: Request) -> Response:
        return answer(peer.get(request.path_params["id"]))

    app = Starlette(
        routes=[
            Route("/add", add, methods=["POST"]),
            Route("/search", search, methods=["POST"]),
            Route("/get/{id}", get),
        ]
    )
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
