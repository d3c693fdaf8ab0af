"""One process owns a data directory. The owner holds an OS lock, which dies with it, and publishes where
it listens beside the lock, so that every other process goes through it."""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout


@dataclass(frozen=True, slots=True)
class Owner:
    """Where the owner of a data directory can be called, on loopback. `token` is its password."""

    pid: int
    url: str
    token: str


class DataDirectoryLock:
    """The OS lock on a data directory, and the owner's card beside it (mode 0600)."""

    def __init__(self, directory: Path):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._card = directory / "owner.json"
        self._lock = FileLock(directory / "lock", mode=0o600)

    def acquire(self) -> bool:
        """Take the lock if it is free. False when another process has it."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        self._card.unlink(missing_ok=True)  # a card left by an owner that was killed
        return True

    def publish(self, owner: Owner) -> None:
        """Tell other processes of this user where to call. Replaces the card in one step."""
        draft = self._card.with_suffix(".tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(owner), file)
        draft.replace(self._card)

    def owner(self) -> Owner | None:
        """The card of the present owner; None while there is none or it is still starting."""
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            return Owner(**json.loads(self._card.read_text(encoding="utf-8")))
        return None

    def release(self) -> None:
        """Give the directory back. The card goes first, so that nobody calls a closed door."""
        if self._lock.is_locked:
            self._card.unlink(missing_ok=True)
            self._lock.release()
