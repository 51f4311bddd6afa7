"""Streams as one: held against sorting all of them at once."""

from itertools import chain, islice, repeat

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.simulation.workloads.streams import merge

END = 1_000.0  # after all times, so that a stream goes on when its own have come

times = st.lists(st.integers(0, 50).map(float), max_size=12).map(sorted)


def cut(times_ms, places):
    """The same times in blocks, none of them empty."""
    blocks = np.split(np.array(times_ms), sorted(places))
    return [block for block in blocks if block.size]


@given(st.data(), st.lists(times, min_size=1, max_size=5))
def test_merged_streams_are_in_the_order_of_time(data, streams):
    """However they are cut into blocks, and each arrival is still of its workflow."""
    given_ms = []
    for index, times_ms in enumerate(streams):
        places = data.draw(st.lists(st.integers(0, len(times_ms)), max_size=4))
        blocks = chain(cut(times_ms, places), repeat(np.array([END])))
        given_ms.append((index, blocks))
    expected = sorted((time_ms, i) for i, times_ms in enumerate(streams) for time_ms in times_ms)
    merged = []
    for times_ms, indices in islice(merge(given_ms), len(expected) + 1):
        assert times_ms.size == indices.size > 0
        merged += zip(times_ms.tolist(), indices.tolist(), strict=True)
    merged_times = [time_ms for time_ms, _ in merged]
    assert merged_times == sorted(merged_times)
    assert expected == sorted(merged)[: len(expected)]
