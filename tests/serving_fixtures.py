"""One server for the whole run: say `pytest_plugins = ["tests.serving_fixtures"]` in a test module, and take
`api`, a caller with an agent of its own."""

from collections.abc import Iterator

import pytest

from tests.serving import Api, Server, eventually, fresh, server


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For all tests that only need their own agent on it. Its model has been loaded."""
    with server(tmp_path_factory.mktemp("brain")) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def api(shared_server: Server) -> Api:
    """A caller with an agent of its own, that names no user."""
    return shared_server.api.of(fresh())
