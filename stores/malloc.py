"""What is asked of the C library's memory allocator."""

import ctypes

_M_PERTURB = -6  # in malloc.h


def wipe() -> None:
    """Have memory overwritten when it is taken and given back, in this process, from now on. Chroma writes
    memory that it never filled into its index, and other rows' text may have stood there: without this a
    purged text can come back in a file that was made after the purge. Only glibc does so."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, 0xFF)
