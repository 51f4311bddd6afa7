"""Tests that need what a machine may lack."""

import os

import pytest


def needing(there: object, reason: str) -> pytest.MarkDecorator:
    """The mark of a test that is left out, with the reason, where a thing is not there.

    Under CI nothing is left out: there the test runs, and fails by what is missing.

    Args:
        there: what the test needs; false where the machine lacks it.
        reason: what is missing, and where it is to be had.
    """
    return pytest.mark.skipif(not there and os.environ.get("CI") != "true", reason=reason)
