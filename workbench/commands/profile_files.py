"""FunctionProfiles of files, as the commands about profiles read them."""

from pathlib import Path

from scheduler.cli.document_files import read_sound
from scheduler.model.documents import FunctionProfile
from workbench.commands.profile_output import refuse


def read_profiles(file: Path, function: str | None) -> list[FunctionProfile]:
    """Return the profiles of a file or folder, or that of one function; exit 1 without one."""
    profiles = [
        document
        for document in read_sound(file)
        if isinstance(document, FunctionProfile) and function in {None, document.metadata.name}
    ]
    if not profiles:
        refuse([f"{file} has no FunctionProfile{'' if function is None else f' {function}'}"])
    return profiles
