"""Numbers of Hypothesis's examples."""

from hypothesis import settings

USUAL = 100
"""Examples of a test without settings, in a full run."""


def examples(number: int, **others: object) -> settings:
    """Return settings with a number of examples; `make check` runs a tenth, as of all tests."""
    share = settings().max_examples / USUAL
    return settings(max_examples=max(1, round(share * number)), **others)
