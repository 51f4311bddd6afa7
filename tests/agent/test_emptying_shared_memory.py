"""What killed processes left in a GPU's /dev/shm: what goes, and what stays."""

import mmap
import os
from pathlib import Path

import pytest

from scheduler.agent.shared_memory import remove_unused

SHM = Path("/dev/shm")


class Processes:
    """A /proc of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sys").mkdir(parents=True)

    def add(
        self, pid: int, *, opened: tuple[Path, ...] = (), mapped: tuple[Path, ...] = ()
    ) -> Path:
        """A process, with these files."""
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
def shm(tmp_path: Path) -> Path:
    """A folder with four files, one of them further down."""
    folder = tmp_path / "shm"
    (folder / "below").mkdir(parents=True)
    for name in ("open", "mapped", "left", "below/left"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    """None yet."""
    return Processes(tmp_path / "proc")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_what_nobody_has_open_or_mapped_goes(shm: Path, processes: Processes, tmp_path: Path):
    """Whatever they are called; a file of the same name elsewhere is another."""
    (tmp_path / "left").touch()
    processes.add(1, opened=(shm / "open", tmp_path / "left", tmp_path / "closed meanwhile"))
    processes.add(2, mapped=(shm / "mapped",))
    assert remove_unused(shm, processes.folder) == 2
    assert files(shm) == {"open", "mapped"}


def test_a_file_that_has_two_names_is_one(shm: Path, processes: Processes):
    """Used by one, it is there by both."""
    (shm / "other").hardlink_to(shm / "open")
    processes.add(1, opened=(shm / "other",))
    remove_unused(shm, processes.folder)
    assert files(shm) == {"open", "other"}


def test_a_process_that_has_ended_uses_nothing(shm: Path, processes: Processes):
    """Between being listed and being read."""
    (processes.folder / "7").mkdir()
    assert remove_unused(shm, processes.folder) == 4


@pytest.mark.parametrize("what", ["fd", "maps"])
def test_nothing_goes_when_a_process_may_not_be_read(shm, processes, monkeypatch, what):
    """It might use anything."""
    closed = processes.add(7) / what
    for call in ("iterdir", "open"):
        allowed = getattr(Path, call)

        def refused(path: Path, *given, allowed=allowed):
            if path == closed:
                raise PermissionError(13, "Permission denied", str(path))
            return allowed(path, *given)

        monkeypatch.setattr(Path, call, refused)
    with pytest.raises(PermissionError):
        remove_unused(shm, processes.folder)
    assert len(files(shm)) == 4


def test_links_lead_nowhere(shm: Path, processes: Processes, tmp_path: Path):
    """Clients write the folder, and root empties it."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "file").touch()
    (shm / "folder").symlink_to(others)
    (shm / "link").symlink_to(others / "file")
    remove_unused(shm, processes.folder)
    assert files(others) == {"file"}
    assert (shm / "link").is_symlink()


def test_this_process_is_seen_as_the_kernel_tells_of_it(processes: Processes):
    """On a tmpfs, as /dev/shm is one."""
    (processes.folder / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    folder = SHM / f"esg-{os.getpid()}"
    folder.mkdir()
    try:
        for name in ("open", "mapped", "left"):
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
