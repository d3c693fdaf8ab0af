"""The floor for reads by id: one Starlette route that answers a JSON object, and nothing else.

python tests/bench/floor_server.py FILE     answers the object in FILE; prints its port
"""

import json
import socket
import sys
from pathlib import Path

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def main(file: str) -> None:
    value = json.loads(Path(file).read_text())

    async def answer(_: Request) -> Response:
        return Response(orjson.dumps(value), media_type="application/json")

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    print(listening.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/memory", answer)])
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
