"""Backups: a copy of the ledger, taken while it is served, beside a manifest that says what is in it.

Chroma is not copied: it is filled from the ledger's vectors at the first start after a restore. A backup is
written under another name and renamed when it is whole, so that half of one never looks like one."""

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from stores.lock import LEDGER, LOCK

FORMAT, VERSION = "brain-memory-backup", 1
MANIFEST = "manifest.json"
COUNTED = ("memories", "versions", "events", "edges", "vectors", "keys")

_PAGES = 4_096  # copied in one step
_BLOCK = 1 << 20  # bytes
_PARTIAL = ".partial"
_MIGRATIONS = Path(__file__).parent / "migrations" / "versions"


class BackupRefused(Exception):
    """It can't be written there, or restored there. The text says why and names the next move."""


class BackupDamaged(Exception):
    """It is not what its manifest says. `faults` are what differs, each a sentence."""

    def __init__(self, path: Path, faults: list[str]):
        super().__init__(f"{path} is not a whole backup: {' '.join(faults)}")
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself. `created_at` is epoch ms, `schema` the migration that the ledger was at,
    `last_seq` its last event, `fingerprint` the model of its vectors, `files` bytes and SHA-256 by name."""

    format: str
    version: int
    created_at: int
    schema: str
    last_seq: int
    fingerprint: str | None
    counts: dict[str, int]
    files: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, backup: Path) -> "Manifest":
        """Raises BackupDamaged, or BackupRefused for one of a later version of this service."""
        try:
            found = orjson.loads((backup / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            raise BackupDamaged(backup, [f"{MANIFEST} can't be read: {error}."]) from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise BackupDamaged(backup, [f"{MANIFEST} is not of a backup."])
        if found.get("version") != VERSION:
            raise BackupRefused(
                f"{backup} has version {found.get('version')}; this brain reads {VERSION}. Use a newer one."
            )
        try:
            return cls(**found)
        except TypeError as error:
            raise BackupDamaged(backup, [f"{MANIFEST} is not as it was written: {error}."]) from error


def back_up(data: Path, target: Path, now: int) -> Manifest:
    """Copy the ledger of a data directory, owned by somebody or not, into the new directory `target`. It
    holds every write that was acknowledged before the call. `now` is epoch ms. Raises BackupRefused."""
    if target.exists() or target.is_symlink():
        raise BackupRefused(f"{target} is there already. Name a directory that is not.")
    if not (data / LEDGER).is_file():
        raise BackupRefused(f"{data} holds no memories. Name their directory with --data.")
    draft = target.with_name(f".{target.name}.{os.getpid()}{_PARTIAL}")
    try:
        draft.mkdir(mode=0o700, parents=True)
        _copy_ledger(data / LEDGER, draft / LEDGER)
        manifest = _describe(draft, now)
        _write(draft / MANIFEST, orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2))
        _sync(draft)
        draft.rename(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise BackupRefused(f"{target} was not written: {error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def verify(backup: Path) -> Manifest:
    """Read all of a backup and compare it with its manifest. Raises BackupDamaged or BackupRefused."""
    manifest = Manifest.read(backup)
    faults = [fault for name, file in manifest.files.items() for fault in _file_faults(backup / name, file)]
    if LEDGER not in manifest.files:
        faults.append(f"{MANIFEST} names no {LEDGER}.")
    if not faults:
        try:
            faults = list(_ledger_faults(backup / LEDGER, manifest))
        except sqlite3.Error as error:
            faults = [f"{LEDGER} can't be read: {error}."]
    if faults:
        raise BackupDamaged(backup, faults)
    return manifest


def restore(backup: Path, data: Path) -> Manifest:
    """Put a backup, verified first, into a data directory that is empty and whose lock the caller holds. The
    next start fills every shard of the vector store, since none of their directories is there. Raises
    BackupDamaged or BackupRefused."""
    draft = data / f"{LEDGER}{_PARTIAL}"
    others = {entry.name for entry in data.iterdir()} - {LOCK, draft.name}
    if others:
        raise BackupRefused(
            f"{data} is not empty: {', '.join(sorted(others)[:3])}. Restore into a new directory."
        )
    manifest = verify(backup)
    if not any(path.name.startswith(f"v{manifest.schema}_") for path in _MIGRATIONS.iterdir()):
        raise BackupRefused(
            f"{backup} was written by a newer brain (schema {manifest.schema}). Restore it with that one."
        )
    try:
        draft.unlink(missing_ok=True)
        with (backup / LEDGER).open("rb") as source, _created(draft) as file:
            shutil.copyfileobj(source, file, _BLOCK)
        _sync(draft)
        draft.rename(data / LEDGER)
        _sync(data)
    except (OSError, sqlite3.Error) as error:
        raise BackupRefused(f"{data} can't take the backup: {error}.") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return manifest


def _copy_ledger(source: Path, target: Path) -> None:
    with _created(target):
        pass
    with closing(sqlite3.connect(source.absolute().as_uri() + "?mode=rw", uri=True)) as reading:
        # In a read transaction of our own the copy is of this moment, and no writer makes it start over.
        reading.isolation_level = None
        reading.execute("PRAGMA busy_timeout=5000")
        reading.execute("PRAGMA query_only=ON")
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with closing(sqlite3.connect(target)) as writing:
            reading.backup(writing, pages=_PAGES)
            writing.execute("PRAGMA journal_mode=DELETE")  # one file, with nothing beside it
        reading.execute("ROLLBACK")
    _sync(target)


def _describe(backup: Path, now: int) -> Manifest:
    ledger = backup / LEDGER
    with _reading(ledger) as connection:
        row = connection.execute("SELECT value FROM settings WHERE name = 'embedding.fingerprint'").fetchone()
        return Manifest(
            format=FORMAT,
            version=VERSION,
            created_at=now,
            schema=_schema(connection),
            last_seq=_last_seq(connection),
            fingerprint=None if row is None else row[0],
            counts=_counts(connection),
            files={LEDGER: {"bytes": ledger.stat().st_size, "sha256": _digest(ledger)}},
        )


def _file_faults(path: Path, file: dict[str, Any]) -> Iterator[str]:
    try:
        size = path.stat().st_size
        if size != file.get("bytes"):
            yield f"{path.name} has {size} bytes instead of {file.get('bytes')}."
        elif _digest(path) != file.get("sha256"):
            yield f"{path.name} has another SHA-256."
    except OSError as error:
        yield f"{path.name} can't be read: {error.strerror}."


def _ledger_faults(path: Path, manifest: Manifest) -> Iterator[str]:
    with _reading(path) as connection:
        for (fault,) in connection.execute("PRAGMA integrity_check(10)"):
            if fault != "ok":
                yield f"{path.name}: {fault}."
        if connection.execute("PRAGMA foreign_key_check").fetchone():
            yield f"{path.name} has rows that belong to none."
        found = (_schema(connection), _last_seq(connection), _counts(connection))
        if found != (manifest.schema, manifest.last_seq, manifest.counts):
            yield f"{path.name} does not hold what {MANIFEST} counts."


def _schema(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def _last_seq(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Rows of the tables that the ledger's schema has; an older one has fewer."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {
        table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        for table in COUNTED
        if table in tables
    }


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, not even a log beside the file: nobody else has it open."""
    uri = path.absolute().as_uri() + "?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield connection


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    with _created(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _created(path: Path) -> Any:
    """A new file for its owner alone, open for writing bytes."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
