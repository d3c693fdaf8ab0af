"""Who waits when there are more threads that compute than cores: not those that answer."""

import os
import sys
import threading
from contextlib import suppress


def give_way(steps: int) -> None:
    """Lower the calling thread's priority by so many steps of nice, and that of the threads which it starts
    later. Only on Linux: elsewhere threads have none of their own, and the number of one may be another
    process's."""
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    with suppress(OSError):  # a sandbox may forbid it
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)
