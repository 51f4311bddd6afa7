"""What killed processes have left in the folder that is a GPU's /dev/shm.

Clients and their MPS server share memory by files there, and one that is killed leaves its own.
Nobody else takes them away, and they are memory: the folder lies on a tmpfs.
"""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")

_File = tuple[int, int]  # device and inode


def remove_unused(folder: Path, proc: Path = _PROC) -> int:
    """Remove the files below the folder that no process has open or mapped; how many those were.

    Args:
        folder: others may write there meanwhile; what they make then stays.
        proc: the machine's processes. One that is not there is not asked.

    Raises:
        OSError: the folder, or a process that lives, may not be read; then nothing is removed.
    """
    found = [(file, name) for file, name, _ in _files(folder)]
    unused = {file for file, _ in found}
    names = {name for _, name in found}
    for process in proc.iterdir() if found else ():
        if process.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                unused.difference_update(_open(process, names))
                unused.difference_update(_mapped(process))
    removed = 0
    for file, name, descriptor in _files(folder):
        if file in unused:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=descriptor)
                removed += 1
    return removed


def _files(folder: Path) -> Iterator[tuple[_File, str, int]]:
    """The files below the folder: each with its name, and a descriptor of where it lies.

    By descriptors, because a folder may become a link under our hands, and we are root.
    """
    for _, _, names, descriptor in os.fwalk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield (status.st_dev, status.st_ino), name, descriptor


def _open(process: Path, names: Collection[str]) -> Iterator[_File]:
    """The files of such a name that the process has open."""
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed
            # The others are not looked at: one may lie on a file server that does not answer.
            if link.readlink().name in names:
                status = link.stat()
                yield status.st_dev, status.st_ino


def _mapped(process: Path) -> Iterator[_File]:
    """The files that the process has mapped."""
    with (process / "maps").open("rb") as lines:
        for line in lines:  # address, rights, offset, device, inode, and the path if there is one
            _, _, _, device, inode, *_ = line.split(maxsplit=5)
            major, minor = (int(part, 16) for part in device.split(b":"))
            yield os.makedev(major, minor), int(inode)
