"""`make bench`: every figure of docs/benchmarks.md that needs no data of others.

    python tests/bench/run.py [--only get,add,…] [--without-key]

Prints the table. Exit code 1 when a target is missed. Needs wrk (`apt-get install wrk`).
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# One thread for the floors too, as the server has.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import add  # noqa: E402
import get  # noqa: E402
import injection  # noqa: E402
import peers  # noqa: E402
import raw  # noqa: E402
import rebuild  # noqa: E402
import recall  # noqa: E402
import scale  # noqa: E402
import search  # noqa: E402
from measure import Figure, has_wrk  # noqa: E402
from server import create_key, running  # noqa: E402

GROUPS = ("get", "add", "search", "recall", "scale", "peers", "rebuild", "raw", "injection")


def group(name: str, *, with_key: bool) -> list[Figure]:
    """The figures of one group. Those that need it get a server of their own."""
    alone = {
        "scale": scale.figures,
        "peers": peers.figures,
        "rebuild": rebuild.figures,
        "raw": raw.figures,
        "injection": injection.figures,
        "search": search.figures,
    }
    if name in alone:
        return alone[name]()
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as scratch:
        data = Path(scratch)
        key = create_key(data) if with_key and name == "get" else None
        with running(data, key=key) as service:
            if name == "get":
                return get.figures(service, key)
            return recall.figures(service) if name == "recall" else add.figures(service)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of figures, by commas")
    parser.add_argument("--without-key", action="store_true", help="GET by id while no key exists")
    given = parser.parse_args()
    if not has_wrk():
        print("make bench needs wrk, the load generator: apt-get install wrk. Nothing was measured.")
        return 0
    print("| figure | target | measured | met |\n|---|---|---|---|", flush=True)
    missed = False
    for name in given.only.split(","):
        for figure in group(name, with_key=not given.without_key):
            print(figure.row(), flush=True)
            missed = missed or figure.met is False
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
