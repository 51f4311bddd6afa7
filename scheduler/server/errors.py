"""Errors that a server reports to its client."""


class RefusedError(Exception):
    """A well-formed request that cannot be answered; the message says why."""
