"""Which pods arrive, and in which order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.packing.arrivals import arrivals
from tests.studies.packing import traces
from tests.studies.packing.traces import pod


@given(pods=traces.pods(), capacity=st.integers(1, 2_000))
def test_as_they_were_created(pods, capacity):
    """Neither seed nor inflation: nothing is changed."""
    assert arrivals(pods, capacity) == pods


@given(pods=traces.pods(), seed=st.integers(0, 9))
def test_shuffled(pods, seed):
    """With a seed the same pods come in another order, which is the seed's."""
    shuffled = arrivals(pods, 100, seed=seed)
    assert Counter(shuffled) == Counter(pods)
    assert shuffled == arrivals(pods, 100, seed=seed)


@given(
    pods=traces.pods().filter(lambda pods: any(arrival.gpus for arrival in pods)),
    capacity=st.integers(1, 2_000),
    inflation_ratio=st.sampled_from([0.1, 1.0, 1.3]),
    seed=st.sampled_from([None, 0, 1]),
)
def test_inflated(pods, capacity, inflation_ratio, seed):
    """So many come that the last one's ask reaches the multiple, and without it none would."""
    arriving = arrivals(pods, capacity, inflation_ratio=inflation_ratio, seed=seed)
    requested = [arrival.share_percent for arrival in arriving]
    assert sum(requested) >= inflation_ratio * capacity > sum(requested[:-1])
    assert set(arriving) <= set(pods)
    if sum(arrival.share_percent for arrival in pods) < inflation_ratio * capacity:
        cut_off = Counter(pods) - Counter(arriving)
        cut_off_percent = sum(arrival.share_percent for arrival in cut_off.elements())
        assert cut_off_percent < max(arrival.share_percent for arrival in pods)


def test_a_seed_draws_its_own_pods():
    """Two seeds, two lists; without one it is that of 0."""
    pods = [pod(f"p{i}", gpu_percent=i + 1) for i in range(50)]
    zero, one = (arrivals(pods, 10_000, inflation_ratio=1, seed=seed) for seed in (0, 1))
    assert zero != one
    assert arrivals(pods, 10_000, inflation_ratio=1) == zero


def test_what_asks_for_no_gpu_cannot_be_inflated():
    """No number of them requests that share."""
    with pytest.raises(ValueError, match="no pod requests a GPU"):
        arrivals([pod(gpus=0)], 100, inflation_ratio=1.3)
