"""How figures are taken: side by side in one run, in turns (A B A B …), each a median of the rounds.

The machine is shared, so absolute figures mean little: what counts is a ratio against a floor that ran in
the same minute, and the CPU time of the processes, which waiting does not change.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROUNDS = 5
_TICKS = os.sysconf("SC_CLK_TCK")

# wrk's own summary as JSON; times in µs there. Requests are sent in order, over again after the last.
_SCRIPT = """
local requests = {
%s
}
local at = 0
request = function()
  at = at %% #requests + 1
  return requests[at]
end
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests": %%d, "us": %%d, "p50": %%d, "p95": %%d, "p99": %%d, "refused": %%d, "broken": %%d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(95),
    latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a load did: requests per second, latencies in ms, CPU of the server in µs a request."""

    rps: float
    p50: float
    p99: float
    cpu: float
    p95: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `met` is None where there is no target."""

    name: str
    target: str
    measured: str
    met: bool | None = None

    def row(self) -> str:
        return f"| {self.name} | {self.target} | {self.measured} | {_MET[self.met]} |"


_MET = {True: "yes", False: "**no**", None: ""}


def at_most(name: str, value: float, limit: float, beside: str) -> Figure:
    """A ratio that must not be above its target; `beside` are the figures behind it."""
    return Figure(name, f"≤ {limit:g}", f"**{value:.2f}** ({beside})", round(value, 2) <= limit)


def at_least(name: str, value: float, limit: float, beside: str) -> Figure:
    return Figure(name, f"≥ {limit:.2f}", f"**{value:.2f}** ({beside})", round(value, 2) >= limit)


def interleaved(subjects: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[Any]]:
    """What each subject gave in each round. Every other round runs backwards, so that a machine that gets
    slower or faster favours nobody."""
    found: dict[str, list[Any]] = {name: [] for name in subjects}
    for number in range(rounds):
        for name in list(subjects) if number % 2 == 0 else reversed(list(subjects)):
            found[name].append(subjects[name]())
    return found


def ratio(ours: Iterable[float], floors: Iterable[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(ours, floors, strict=True))


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def cpu_seconds(*pids: int) -> float:
    """User and system time that the processes, with all their threads, have had."""
    return sum(_cpu_ticks(pid) for pid in pids) / _TICKS


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mb(pid: int) -> float:
    """Memory of a process that is its own: what it shares with files is not counted."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except FileNotFoundError:  # the thread has ended
        return []


def disk_mb(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / 1e6


def has_wrk() -> bool:
    return shutil.which("wrk") is not None


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a load."""

    path: str
    body: Any = None


class Wrk:
    """A load on one server. `pids` are the processes whose CPU time counts as the server's."""

    def __init__(
        self,
        url: str,
        requests: Sequence[Request],
        *,
        connections: int,
        headers: Mapping[str, str] | None = None,
        pids: Sequence[int] = (),
    ):
        self._url = url
        self._connections = connections
        self._pids = pids
        raw = (_raw(urlsplit(url).netloc, headers or {}, request) for request in requests)
        self._script = _SCRIPT % ",\n".join(_lua(text) for text in raw)

    def run(self, seconds: float) -> Load:
        """Load the server for so long. Raises when an answer was no success."""
        before = cpu_seconds(*self._pids)
        told = json.loads(self.start(seconds).communicate()[0].splitlines()[-1])
        cpu = cpu_seconds(*self._pids) - before
        if told["refused"] or told["broken"] or not told["requests"]:
            raise RuntimeError(f"wrk on {self._url}: {told}")
        count = told["requests"]
        p50, p95, p99 = (told[name] / 1000 for name in ("p50", "p95", "p99"))
        return Load(count / told["us"] * 1e6, p50, p99, cpu / count * 1e6, p95)

    def start(self, seconds: float) -> "subprocess.Popen[str]":
        """The same in the background."""
        with tempfile.NamedTemporaryFile("w", suffix=".lua", delete=False) as script:
            script.write(self._script)
        options = f"-t1 -c{self._connections} -d{seconds:g}s --timeout 120s"
        command = ["wrk", *options.split(), "-s", script.name, self._url]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _raw(host: str, headers: Mapping[str, str], request: Request) -> str:
    body = "" if request.body is None else json.dumps(request.body)
    head = {"Host": host, **headers}
    if body:
        head |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"{'POST' if body else 'GET'} {request.path} HTTP/1.1\r\n{lines}\r\n{body}"


def _lua(text: str) -> str:
    """As a Lua string: JSON's escapes of the ASCII that we send are Lua's, but for `\\/` and `\\u`."""
    return json.dumps(text)
