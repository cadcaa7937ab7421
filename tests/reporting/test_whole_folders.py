"""A folder is replaced as a whole, or not at all: wherever the command is killed, and however many write at once."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.record import RecordError
from reporting.whole_folders import put_back, replace_files

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
OLD = dict.fromkeys(("one.md", "two.md", "three.md"), b"old")
NEW = dict.fromkeys(("one.md", "two.md", "four.md"), b"new")
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod")  # audited before they happen


def found(folder: Path) -> dict[str, bytes] | None:
    return {file.name: file.read_bytes() for file in folder.iterdir()} if folder.exists() else None


def replaced(folder: Path, files: dict[str, bytes]) -> list[Path]:
    return replace_files(folder, files, own=OLD.keys() | NEW.keys())


def forked(do: Callable[[], object]) -> int:
    """The number of a process that does something and ends."""
    if process := os.fork():
        return process
    try:
        do()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def killed(folder: Path, at: int) -> bool:
    """Whether a process that replaces the files was killed before its change number `at`; else it has ended."""

    def replace() -> None:
        left = at

        def count(event: str, _: object) -> None:
            nonlocal left
            if event not in CHANGES:
                return
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        replaced(folder, NEW)

    _, status = os.waitpid(forked(replace), 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.medium
def test_wherever_a_command_is_killed_the_old_set_or_the_new_one_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # for speed: a killed process loses nothing that it has written
    folder, at, seen = tmp_path / "results" / "tables", 0, []
    while True:
        replaced(folder, OLD)
        ended = not killed(folder, at)
        seen.append("nothing" if found(folder) is None else "old" if found(folder) == OLD else "new")
        assert found(folder) in (OLD, NEW, None), at
        if at % 2:
            put_back(folder)
            assert found(folder) == (NEW if seen[-1] == "new" else OLD), at
        else:  # the next command has nothing to put back by hand
            replaced(folder, NEW)
        assert list(folder.parent.iterdir()) == [folder], at
        if ended:
            break
        at += 1
    assert list(dict.fromkeys(seen)) == ["old", "nothing", "new"]
    assert seen.count("nothing") == 1  # between the two renames
    assert at > 12


@pytest.mark.medium
def test_two_commands_at_once_leave_the_files_of_one(tmp_path):
    folder = tmp_path / "results" / "tables"

    def write(mark: bytes) -> None:
        for _ in range(20):
            replaced(folder, dict.fromkeys(OLD, mark))

    processes = [forked(lambda mark=mark: write(mark)) for mark in (b"first", b"second")]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]
    assert found(folder) in (dict.fromkeys(OLD, b"first"), dict.fromkeys(OLD, b"second"))
    assert list(folder.parent.iterdir()) == [folder]


def test_files_of_ones_own_stay_and_those_that_are_no_more_are_named(tmp_path):
    folder = tmp_path / "tables"
    assert replaced(folder, OLD) == []
    (folder / "notes.txt").write_bytes(b"mine")
    (folder / "more").mkdir()
    (folder / "more" / "deep.md").write_bytes(b"mine")
    (folder / "link").symlink_to("nowhere")
    folder.chmod(0o2775)  # shared with a group
    assert replaced(folder, NEW) == [folder / "three.md"]
    assert folder.stat().st_mode & 0o7777 == 0o2775
    assert {name: (folder / name).read_bytes() for name in NEW} == NEW
    assert (folder / "notes.txt").read_bytes() == (folder / "more" / "deep.md").read_bytes() == b"mine"
    assert os.readlink(folder / "link") == "nowhere"

    link = tmp_path / "elsewhere"
    link.symlink_to(folder)
    replaced(link, OLD)
    assert link.is_symlink()
    assert (folder / "three.md").read_bytes() == b"old"


def test_what_cannot_be_written_leaves_the_old_files_and_names_the_place(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "tables"
    replaced(folder, OLD)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"one\.md: cannot be written \(No space left on device\); make room"):
            replaced(folder, NEW)
    assert found(folder) == OLD
    real = Path.rename

    def busy(path: Path, target: Path) -> Path:
        if path.name == ".tables.new":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", busy)
        with pytest.raises(RecordError, match=r"\.tables\.new: cannot be written \(Device or resource busy\)"):
            replaced(folder, NEW)
    assert found(folder) == OLD
    assert list(folder.parent.iterdir()) == [folder]

    for place, named in ((folder / "one.md", folder / "one.md"), (folder / "one.md" / "tables", folder / "one.md")):
        with pytest.raises(RecordError) as error:
            replaced(place, NEW)
        assert str(error.value).startswith(f"{named}: cannot be written (")
    assert found(folder) == OLD
