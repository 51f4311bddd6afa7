"""The argument of ADR 34 in all states of a model; without any of its parts it does not hold."""

import pytest

from tests.soundness.owner_model import PARTS, SOUND, OwnerModel, Rules, explore, without
from tests.soundness.owner_state import BOUND, INITIAL, State, is_overcommitted


def play(rules: Rules, steps: list[str]) -> list[State]:
    """Return the states along some steps."""
    states = [INITIAL]
    for step in steps:
        states.append(dict(OwnerModel(rules).successors(states[-1]))[step])
    return states


def is_bound(state: State, pod: int) -> bool:
    return state.pods[pod][-1] == BOUND


@pytest.mark.slow
@pytest.mark.parametrize("rules", SOUND, ids=("end", "restart", "give up", "change"))
def test_no_state_overcommits(rules):
    """Bound pods and Bindings in flight are within the GPU, in every order of steps."""
    result = explore(rules)
    assert result.steps is None
    assert result.states > 10_000


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_overcommits(part):
    """The shortest way to 120 % is found; no state before its last one is over 100 %."""
    steps = explore(without(part)).steps
    assert steps is not None
    *before, last = play(without(part), steps)
    assert is_overcommitted(last)
    assert not any(is_overcommitted(state) for state in before)


def test_both_processes_bind_pods():
    """The GPU goes from one process to the other: the model is not sound by doing nothing."""
    states = play(
        Rules(ends=1),
        [
            "p sends bind of pod 0 in version 1",
            "bind of pod 0 in version 1 arrives",
            "pod 1 is created",
            "pod 0 ends",
            "q reads the Lease",
            "q has waited for the Lease",
            "q sends acquire of the Lease in version 1",
            "acquire of the Lease in version 1 arrives",
            "q takes over",
            "void of pod 1 in version 1 arrives",
            "q sends bind of pod 1 in version 2",
            "bind of pod 1 in version 2 arrives",
        ],
    )
    assert [max(history) for history in states[-1].pods] == [3, 2]


def test_a_paused_owner_binds_nothing_after_a_hand_over():
    """Its Binding arrives after the new owner's patch, and is refused."""
    states = play(
        Rules(),
        [
            "p sends bind of pod 0 in version 1",
            "q reads the Lease",
            "q has waited for the Lease",
            "q sends acquire of the Lease in version 1",
            "acquire of the Lease in version 1 arrives",
            "q takes over",
            "void of pod 0 in version 1 arrives",
            "bind of pod 0 in version 1 arrives",
        ],
    )
    assert states[-1].pods[0] == states[-2].pods[0]


def test_the_owner_binds_a_changed_pod_at_once():
    """A Binding that names an older version is refused; the next one names that of a read."""
    states = play(
        Rules(faults=1),
        [
            "p sends bind of pod 0 in version 1",
            "pod 0 changes",
            "bind of pod 0 in version 1 arrives",
            "p reads pod 0 and sends bind of pod 0 in version 2",
            "bind of pod 0 in version 2 arrives",
        ],
    )
    assert is_bound(states[-1], 0)
