"""What names a raw session, and what its content hash says. Both stand for ever: clients keep them."""

import hashlib
import re
import struct
from typing import Literal, NamedTuple, get_args

from models.scope import Partition

Mode = Literal["interactive", "unattended", "subagent", "unknown"]
MODES: tuple[Mode, ...] = get_args(Mode)

MAX_EPOCH = 10**10  # seconds; what is not below it was meant as milliseconds
SAMPLE_CHARACTERS = 200  # of a message's text, code points
_REF = "brain://raw-session/v1/"
_PARTS = re.compile(r"((?:[0-9a-f]{2})*)/((?:[0-9a-f]{2})*)/((?:[0-9a-f]{2})*)/((?:[0-9a-f]{2})*)")
_TAG = b"brain-raw-session-content-v1"


class SessionName(NamedTuple):
    """Which session. `host` is empty when it could not be told."""

    host: str
    source_root: str
    project: str
    session_id: str

    @property
    def ref(self) -> str | None:
        """`brain://raw-session/v1/<hex>/<hex>/<hex>/<hex>`; None without a host."""
        return _REF + "/".join(part.encode().hex() for part in self) if self.host else None

    @classmethod
    def from_ref(cls, ref: str) -> "SessionName | None":
        """The inverse of `ref`; None for anything else."""
        parts = _PARTS.fullmatch(ref.removeprefix(_REF))
        if not ref.startswith(_REF) or parts is None:
            return None
        try:
            return cls(*(bytes.fromhex(part).decode() for part in parts.groups()))
        except UnicodeDecodeError:
            return None

    def key(self, partition: Partition) -> str:
        """Tells one user's session from all others, and shows none of the names."""
        return digest(*partition, *self)

    def transcript_key(self, partition: Partition, transcript_id: str) -> str:
        """The same of a transcript. Its host is not part of it: one transcript has one host."""
        return digest(*partition, *self[1:], transcript_id)


class Row(NamedTuple):
    """What the content hash covers of a message."""

    identity_id: int
    ordinal: int
    role: str
    content_hash: str
    epoch: int


class ContentHash:
    """SHA-256 over the names of a session and then its messages, in the order of (epoch, id). Each field
    stands behind its length, a little-endian u64, and each number is a little-endian i64."""

    def __init__(self, name: SessionName):
        self._hash = hashlib.sha256()
        host, root, project, session_id = (part.encode() for part in name)
        for field in (_TAG, root, host, project, session_id):
            self._hash.update(struct.pack("<Q", len(field)) + field)

    def add(self, row: Row) -> None:
        """The next message."""
        role, text = row.role.encode(), row.content_hash.encode()
        self._hash.update(
            struct.pack("<QqQqQ", 8, row.identity_id, 8, row.ordinal, len(role))
            + role
            + struct.pack("<Q", len(text))
            + text
            + struct.pack("<Qq", 8, row.epoch)
        )

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def message_hash(content: str) -> str:
    """`sha256:content-v1:<hex>` of a text without the white space around it."""
    return f"sha256:content-v1:{hashlib.sha256(content.strip().encode()).hexdigest()}"


def digest(*names: str) -> str:
    """Equal for equal lists of names, and tells nothing else of them."""
    parts = (name.encode() for name in names)
    return hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).hexdigest()


def raw_session_key(name: SessionName) -> str:
    """What orders the messages of a session among themselves, unique among hosts and roots."""
    return "raw:" + digest(*name)


def merged(known: Mode, told: Mode) -> Mode | None:
    """The mode of what was `known` and is now `told`; None when they contradict each other."""
    if "unknown" in (known, told) or known == told:
        return told if known == "unknown" else known
    return None
