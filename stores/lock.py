"""One process owns a data directory. The owner holds an OS lock, which dies with it, and publishes where
it listens beside the lock, so that every other process goes through it."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

LOCK, LEDGER = "lock", "ledger.sqlite3"
MOVE = "Choose another data directory, with --data or data.directory."


class UnusableDirectory(Exception):
    """The data directory can't hold memories. The text says why and names the next move."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Where the owner of a data directory can be called, on loopback. `token` is its password."""

    pid: int
    url: str
    token: str


class DataDirectoryLock:
    """The OS lock on a data directory, and the owner's card beside it (mode 0600)."""

    def __init__(self, directory: Path):
        """Makes the directory, mode 0700, if there is none. Raises UnusableDirectory."""
        with _usable(directory):
            _prepare(directory)
        self._directory = directory
        self._card = directory / "owner.json"
        self._lock = FileLock(directory / LOCK, mode=0o600)

    def acquire(self) -> bool:
        """Take the lock if it is free. False when another process has it. Raises UnusableDirectory."""
        with _usable(self._directory):
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


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = {entry.name for entry in directory.iterdir()}
    if entries and LOCK not in entries and LEDGER not in entries:
        # Not ours: to take it would change its mode, and mix memories with somebody's files.
        raise UnusableDirectory(f"{directory} is not empty and holds no memories. {MOVE}")
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableDirectory(f"{directory} can't be used: {error.strerror}. {MOVE}") from error
