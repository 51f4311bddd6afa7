"""Rendering of pages from the Jinja templates of this room."""

from importlib import import_module
from typing import Any

from scheduler.server import page_files

_LIBRARIES = ("jinja2", "matplotlib")


class MissingReportLibraryError(RuntimeError):
    """A library for pages is not installed; the message says how to install it."""


def require_extra() -> None:
    """Raise MissingReportLibraryError if a library for pages is missing."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ModuleNotFoundError:
            raise MissingReportLibraryError(
                f"a page needs {name}, which is not installed; run "
                "pip install 'esg-scheduler[workbench]'"
            ) from None


def render(template: str, **values: Any) -> str:
    """Render a template of this room, with the colours of the live page.

    Values are escaped, except Markup.
    """
    from jinja2 import (  # noqa: PLC0415 - not always there
        ChoiceLoader,
        Environment,
        FileSystemLoader,
        PackageLoader,
        StrictUndefined,
    )

    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("workbench.reports", "templates"), FileSystemLoader(page_files.FOLDER)]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)
