"""Marks of tests that need programs or files which a machine may lack."""

import os

import pytest


def needing(present: object, reason: str) -> pytest.MarkDecorator:
    """Skip a test, with the reason, where a requirement is missing.

    Under CI nothing is skipped: the test runs there and fails for lack of the requirement.

    Args:
        present: true if the machine has the requirement.
        reason: what is missing, and where to get it.
    """
    return pytest.mark.skipif(not present and os.environ.get("CI") != "true", reason=reason)
