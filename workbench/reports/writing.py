"""From what is to be told to the text of a page: Jinja's templates beside this module."""

from importlib import import_module
from typing import Any

_LIBRARIES = ("jinja2", "matplotlib")


class MissingReportLibraryError(RuntimeError):
    """A library that pages need is not installed; the message says how to get it."""


def need_libraries() -> None:
    """Raise a MissingLibraryError where a page cannot be made."""
    for name in _LIBRARIES:
        try:
            import_module(name)
        except ModuleNotFoundError:
            raise MissingReportLibraryError(
                f"a page needs {name}, which is not installed; run "
                "pip install 'esg-scheduler[report]'"
            ) from None


def written(template: str, **told: Any) -> str:
    """A template of this room, filled in; all that it is told is escaped, but for Markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - not always there

    environment = Environment(
        loader=PackageLoader("workbench.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(told)
