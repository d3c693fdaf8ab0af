"""What is asked of the C library's memory allocator. Only glibc does so."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_M_MMAP_THRESHOLD, _M_PERTURB = -3, -6  # in malloc.h
_LARGE = 1 << 20  # bytes; Chroma's index is larger from the start


def wipe() -> None:
    """Have memory overwritten when it is taken and given back, in this process, from now on, and large blocks
    always taken from the kernel, which gives zeros. Chroma writes memory that it never filled into its index,
    and other rows' text may have stood there: without this a purged text can come back in a file that was
    made after the purge."""
    _set(_M_MMAP_THRESHOLD, _LARGE)  # else it rises, and large blocks are used again too
    _set(_M_PERTURB, 0xFF)


@contextmanager
def wiping(on: bool) -> Iterator[None]:
    """Wipe or not, as an exception. An index that is loaded takes room for up to twice its rows, zeros from
    the kernel: to overwrite them takes memory that it may never need."""
    _set(_M_PERTURB, 0xFF if on else 0)
    try:
        yield
    finally:
        _set(_M_PERTURB, 0xFF)


def _set(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
