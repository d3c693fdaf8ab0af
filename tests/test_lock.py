"""The data directory: who may have it, and what is refused before anything is touched."""

import stat
from pathlib import Path

import pytest

from stores.lock import DataDirectoryLock, UnusableDirectory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    DataDirectoryLock(directory)
    assert mode(directory) == 0o700


def test_an_empty_directory_and_one_of_ours_are_taken_and_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    lock = DataDirectoryLock(tmp_path)
    assert mode(tmp_path) == 0o700 and lock.acquire()
    (tmp_path / "more").touch()
    tmp_path.chmod(0o755)
    DataDirectoryLock(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_directory_with_somebodys_files_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(UnusableDirectory, match=r"not empty.*--data"):
        DataDirectoryLock(tmp_path)
    assert mode(tmp_path) == 0o755


def test_what_can_not_be_a_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below"):
        with pytest.raises(UnusableDirectory, match=r"can't be used: .*--data"):
            DataDirectoryLock(place)


def test_a_lock_that_can_not_be_opened_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    lock = DataDirectoryLock(tmp_path)
    with pytest.raises(UnusableDirectory, match="can't be used"):
        lock.acquire()
