"""Removal of files that killed processes left in a GPU's /dev/shm."""

import mmap
import os
from pathlib import Path

import pytest

from scheduler.agent.mps.shared_memory import remove_unused

SHM = Path("/dev/shm")


class FakeProcesses:
    """A fake /proc."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "sys").mkdir(parents=True)

    def add(self, pid, *, opened=(), mapped=()):
        """Add a process with open and mapped files."""
        process = self.folder / str(pid)
        (process / "fd").mkdir(parents=True)
        for number, path in enumerate(opened):
            (process / "fd" / str(number)).symlink_to(path)
        lines = ["7f00-7f01 rw-p 00000000 00:00 0\n"]
        for path in mapped:
            status = path.stat()
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            lines.append(
                f"7f01-7f02 rw-s 00000000 {device} {status.st_ino}   /dev/shm/with blanks\n"
            )
        (process / "maps").write_text("".join(lines))
        return process


@pytest.fixture
def shm(tmp_path):
    """Create a folder with four files, one of them in a subfolder."""
    folder = tmp_path / "shm"
    (folder / "below").mkdir(parents=True)
    for name in ("open", "mapped", "leftover", "below/leftover"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def processes(tmp_path):
    """Create a /proc without processes."""
    return FakeProcesses(tmp_path / "proc")


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_unused_files_are_removed(shm, processes, tmp_path):
    """The name does not matter; a file of the same name elsewhere is another."""
    (tmp_path / "leftover").touch()
    processes.add(1, opened=(shm / "open", tmp_path / "leftover", tmp_path / "closed meanwhile"))
    processes.add(2, mapped=(shm / "mapped",))
    assert remove_unused(shm, processes.folder) == 2
    assert files(shm) == {"open", "mapped"}


def test_file_with_two_names(shm, processes):
    """If one name is in use, both stay."""
    (shm / "second").hardlink_to(shm / "open")
    processes.add(1, opened=(shm / "second",))
    remove_unused(shm, processes.folder)
    assert files(shm) == {"open", "second"}


def test_ended_process(shm, processes):
    """A process may end between the list and its reading."""
    (processes.folder / "7").mkdir()
    assert remove_unused(shm, processes.folder) == 4


@pytest.mark.parametrize("part", ["fd", "maps"])
def test_unreadable_process(shm, processes, monkeypatch, part):
    """It might use any file, so none is removed."""
    closed = processes.add(7) / part
    for call in ("iterdir", "open"):
        allowed = getattr(Path, call)

        def refused(path, *arguments, allowed=allowed):
            if path == closed:
                raise PermissionError(13, "Permission denied", str(path))
            return allowed(path, *arguments)

        monkeypatch.setattr(Path, call, refused)
    with pytest.raises(PermissionError):
        remove_unused(shm, processes.folder)
    assert len(files(shm)) == 4


def test_links_are_not_followed(shm, processes, tmp_path):
    """Clients can write to the folder, and root empties it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (shm / "folder").symlink_to(outside)
    (shm / "link").symlink_to(outside / "file")
    remove_unused(shm, processes.folder)
    assert files(outside) == {"file"}
    assert (shm / "link").is_symlink()


def test_real_process(processes):
    """This process's own files are detected, on a tmpfs like /dev/shm."""
    (processes.folder / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    folder = SHM / f"esg-{os.getpid()}"
    folder.mkdir()
    try:
        for name in ("open", "mapped", "leftover"):
            (folder / name).write_text(name)
        descriptor = os.open(folder / "mapped", os.O_RDWR)
        with mmap.mmap(descriptor, 6), (folder / "open").open():
            os.close(descriptor)
            assert remove_unused(folder, processes.folder) == 1
            assert files(folder) == {"open", "mapped"}
        assert remove_unused(folder, processes.folder) == 2
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
