"""One server for all tests of the observations view, with a clock that only they move, and a view of it with
an agent of its own through each door: say `pytest_plugins = ["tests.observing_fixtures"]`."""

from collections.abc import Iterator

import pytest

from service.mcp_tools import TOOLSETS
from tests.observing import Clock, Http, View, mcp_door
from tests.serving import Server, eventually, fresh, server

CLOCK = Clock()


@pytest.fixture(scope="session")
def observing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("observing")
    with server(directory, clock=CLOCK, mcp={"toolsets": list(TOOLSETS)}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def clock() -> Clock:
    return CLOCK


@pytest.fixture
def http_view(observing_server: Server) -> View:
    """For what the door makes no difference to."""
    api = observing_server.api.of(fresh("observer"))
    return View(Http(api), observing_server, api)


@pytest.fixture(params=["http", "mcp"])
def view(request: pytest.FixtureRequest, observing_server: Server) -> Iterator[View]:
    api = observing_server.api.of(fresh("observer"))
    if request.param == "http":
        yield View(Http(api), observing_server, api)
        return
    with mcp_door(observing_server, api) as door:
        yield View(door, observing_server, api)
