"""Who waits when there are more threads that compute than cores: not those that answer."""

import os
import threading
from contextlib import suppress


def give_way(steps: int) -> None:
    """Lower the calling thread's priority by so many steps of nice, and that of the threads which it starts
    later. Does nothing where threads have no priority of their own (only Linux's do)."""
    thread = threading.get_native_id()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + steps)
