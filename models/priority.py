"""Who waits when there are more threads that compute than cores: not those that answer."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_BREATH_S = 50e-6


def give_way(steps: int) -> None:
    """Lower the calling thread's priority by so many steps of nice, and that of the threads which it starts
    later. Only on Linux: elsewhere threads have none of their own, and the number of one may be another
    process's."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    with suppress(OSError):  # a sandbox may forbid it
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)


def unhurried(items: Iterable[T]) -> Iterator[T]:
    """The items, with a breath between two: for loops that compute for many milliseconds beside the event
    loop. Who waits for Python's lock gets it when somebody has kept it for `sys.getswitchinterval()`. But two
    such threads that also read SQLite's rows hand it to each other every few microseconds, each time that
    wait starts anew, and the event loop stood still for up to 20 ms."""
    for number, item in enumerate(items):
        if number:
            time.sleep(_BREATH_S)
        yield item
