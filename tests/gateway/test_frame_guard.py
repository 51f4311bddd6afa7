"""Frames are checked by their heads, however the bytes of a connection are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gateway.grpc.frame_guard import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    PREFACE,
    FloodError,
    FrameGuard,
)

DATA, HEADERS, PING, CONTINUATION = 0, 1, 6, 9


def frame(kind, size, length=None):
    return (length or size).to_bytes(3, "big") + bytes((kind, 0, 0, 0, 0, 1)) + bytes(size)


def check(stream, cuts):
    """Check a connection whose bytes come in several reads."""
    guard = FrameGuard()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        guard.check(memoryview(stream)[begin:end])


FRAMES = st.lists(
    st.tuples(st.sampled_from([DATA, HEADERS, PING]), st.sampled_from([0, 1, 8, 2000])), max_size=20
)
CUTS = st.lists(st.integers(0, 400), max_size=30)
BAD = {
    "a long frame": frame(DATA, 0, FRAME_BYTES_MAX + 1),
    "long headers": frame(HEADERS, FRAME_BYTES_MAX)
    + frame(CONTINUATION, HEADER_BYTES_MAX - FRAME_BYTES_MAX)
    + frame(CONTINUATION, 1),
    "many frames": frame(PING, 0) * 10_001,
    "many small parts of messages": frame(DATA, 1) * 10_001,
}


@given(FRAMES, CUTS)
def test_any_reads_of_sound_frames_pass(frames, cuts):
    stream = PREFACE + b"".join(frame(kind, size) for kind, size in frames)
    check(stream, sorted(min(cut, len(stream)) for cut in cuts))


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@given(FRAMES, CUTS)
def test_any_reads_of_a_flood_are_found(bad, frames, cuts):
    """The last head of it is enough."""
    sound = PREFACE + b"".join(frame(kind, size) for kind, size in frames)
    stream = sound + bad
    with pytest.raises(FloodError):
        check(stream, sorted(min(cut, len(stream)) for cut in cuts))


def test_frames_of_answered_calls_are_no_flood():
    guard = FrameGuard()
    guard.check(memoryview(PREFACE))
    for _ in range(1000):
        guard.check(memoryview(frame(PING, 0) * 20))
        guard.call_answered(0)
    guard.call_answered(100 * 2**20)
    guard.check(memoryview(frame(PING, 0) * 10_000))
    with pytest.raises(FloodError):
        guard.check(memoryview(frame(PING, 0)))
