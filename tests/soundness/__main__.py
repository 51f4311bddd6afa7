"""``python -m tests.soundness``: the model of ADR 34, and what each of its parts prevents."""

import sys

from tests.soundness.owner_model import PARTS, SOUND, explore, without


def main() -> int:
    """Print the number of states of each search, and the ways to 120 %."""
    failed = 0
    for rules in SOUND:
        result = explore(rules)
        failed += result.steps is not None
        print(f"{rules}: states: {result.states:,}", *result.steps or (), sep="\n  ")
    for part in PARTS:
        result = explore(without(part))
        failed += result.steps is None
        print(f"without {part}: states: {result.states:,}", *result.steps or (), sep="\n  ")
    print(f"failures: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
