"""The clock goes back while the server runs, and between two runs."""

from pathlib import Path

from tests.faults.processes import Victim, victim

HOUR_MS = 3_600_000


def written(server: Victim, texts: list[str]) -> list[tuple[str, int]]:
    """Id and time of each."""
    added = [server.api.add(text)["memory"] for text in texts]
    return [(memory["memory_id"], memory["gmt_created"]) for memory in added]


def test_time_and_order_of_what_is_written_never_go_back_and_nothing_stands_still(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with victim(data, "vdb__gather_ms=200") as server:
        clock = server.control / "clock"
        found = written(server, ["The first bell rings.", "The second bell rings."])
        server.ready()
        for hours in (-1, -26, -25):
            clock.write_text(str(hours * HOUR_MS))
            found += written(server, [f"A bell rings at {hours}."])
            server.ready()  # Chroma is fed on, though all that it waited for seems to lie ahead
        plan = server.api.add("Ring the bell.", layer="l7_intention", valid_until=found[-1][1] + HOUR_MS)
        assert plan["memory"]["status"] == "active"
        server.kill()
    clock.write_text(str(-50 * HOUR_MS))
    with victim(data, "vdb__gather_ms=200") as server:
        found += written(server, ["A bell rings after the restart."])
        server.ready()
        times = [at for _, at in found]
        assert times == sorted(times)
        listed = [memory["memory_id"] for memory in server.api.list(order="oldest")["memories"]]
        assert listed[: len(found) - 1] == [id for id, _ in found[:-1]]
        assert listed[-1] == found[-1][0]
        newest = server.api.search("bell rings after the restart", limit=1)["results"]
        assert [hit["memory_id"] for hit in newest] == [found[-1][0]]
        history = server.api.get(f"/brain/memory/{found[0][0]}/history").json()
        assert history["versions"][0]["memory_id"] == found[0][0]
        assert server.terminate() == 0
