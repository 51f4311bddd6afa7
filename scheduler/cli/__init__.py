"""Command line of ``esg``: ``commands`` declares it, the other modules carry it out."""

from scheduler.cli.commands import app

__all__ = ["app"]
