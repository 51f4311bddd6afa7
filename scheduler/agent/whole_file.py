"""Files that other processes read while they are written: they see the old text or the new one."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace a file's text atomically; its temporary file is hidden, without the file's suffix.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
