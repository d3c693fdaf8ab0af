"""Memory ids: UUIDv7 (RFC 9562, section 5.7), sortable by time and unguessable."""

import os


def uuid7(at: int, entropy: bytes | None = None) -> str:
    """An id for a time in epoch ms: 48 bits of time, 74 random ones. `entropy` is 10 bytes."""
    random = int.from_bytes(entropy or os.urandom(10), "big")
    high, low = random >> 68, random & (2**62 - 1)  # 12 and 62 bits
    value = (at & (2**48 - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
