"""FunctionProfiles of files and URLs, as the commands about profiles read them."""

from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

from scheduler.cli.document_files import DocumentSet, read_sound, require_sound
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import Document, FunctionProfile
from scheduler.model.message_text import reason_of
from workbench.commands.profile_output import refuse
from workbench.profiles.bundles import ProfileText, read_bundle

_TIMEOUT_S = 30.0
_BYTES_MAX = 64 * 2**20


def read_profiles(file: Path, function: str | None) -> list[FunctionProfile]:
    """Return the profiles of a file or folder, or that of one function; exit 1 without one."""
    return _profiles_of(read_sound(file), str(file), function)


def read_published(place: str, function: str | None) -> ProfileText:
    """Return the profiles of a file, folder or URL, and the header of a bundle; exit 1 without."""
    if Path(place).is_dir():
        return ProfileText(None, read_profiles(Path(place), function))
    try:
        bundle = read_bundle(_text(place), place)
    except (OSError, ValueError) as error:
        refuse(
            error.problems
            if isinstance(error, DocumentError)
            else [f"{place} cannot be read: {reason_of(error)}"]
        )
    require_sound(DocumentSet([(place, profile) for profile in bundle.profiles], []))
    return ProfileText(bundle.header, _profiles_of(bundle.profiles, place, function))


def _profiles_of(
    documents: Iterable[Document], place: str, function: str | None
) -> list[FunctionProfile]:
    profiles = [
        document
        for document in documents
        if isinstance(document, FunctionProfile) and function in {None, document.metadata.name}
    ]
    if not profiles:
        refuse([f"{place} has no FunctionProfile{'' if function is None else f' {function}'}"])
    return profiles


def _text(place: str) -> str:
    if not place.startswith(("http://", "https://")):
        return Path(place).read_text(encoding="utf-8")
    with urlopen(place, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - its scheme is one of two
        content: bytes = answer.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise ValueError(f"it is larger than {_BYTES_MAX // 2**20} MiB")
    return content.decode()
