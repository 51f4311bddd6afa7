"""Removal of files that killed processes left in a GPU's /dev/shm folder.

Clients and their MPS server share memory by files there, and a killed one leaves its files behind.
No other program removes them, and they occupy memory: the folder is on a tmpfs.
"""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")

_File = tuple[int, int]  # device and inode


def remove_unused(folder: Path, proc: Path = _PROC) -> int:
    """Remove the files in the folder that no process has open or mapped; return their number.

    Args:
        folder: folder of the files; new files that appear meanwhile stay.
        proc: folder of the machine's processes. A process that ends meanwhile is ignored.

    Raises:
        OSError: the folder, or a running process, cannot be read; then nothing is removed.
    """
    files = [(file, name) for file, name, _ in _files(folder)]
    unused = {file for file, _ in files}
    names = {name for _, name in files}
    for process in proc.iterdir() if files else ():
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
    """List the files in the folder: each with its name, and a descriptor of its folder.

    By descriptors, because another process may replace a folder by a link, and this one is root.
    """
    for _, _, names, descriptor in os.fwalk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield (status.st_dev, status.st_ino), name, descriptor


def _open(process: Path, names: Collection[str]) -> Iterator[_File]:
    """List the open files of the process that have one of the names."""
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed
            # Other links are not followed: one may lead to a file server that does not answer.
            if link.readlink().name in names:
                status = link.stat()
                yield status.st_dev, status.st_ino


def _mapped(process: Path) -> Iterator[_File]:
    """List the mapped files of the process."""
    with (process / "maps").open("rb") as lines:
        for line in lines:  # address, rights, offset, device, inode, and the path if there is one
            _, _, _, device, inode, *_ = line.split(maxsplit=5)
            major, minor = (int(part, 16) for part in device.split(b":"))
            yield os.makedev(major, minor), int(inode)
