"""A slice of the floods: heads and connections, to every port."""

import pytest

from tests.floods.flooding import flood_all
from tests.fuzz.targets import running_targets

NAMES = ("one header", "pipelined requests", "chunks without end")
GRPC_NAMES = ("messages without end", "rapid reset")


@pytest.mark.slow
async def test_floods_take_no_memory(monkeypatch):
    """No process grows by more than 64 MiB, whichever port is flooded.

    `make floods` has all floods, and judges the time of filter, too, which depends on the machine.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with running_targets() as targets:
        results = await flood_all(targets, names=(*NAMES, *GRPC_NAMES))
    assert len(results) == len(NAMES) * len(targets.http) + len(GRPC_NAMES)
    assert [result for result in results if result.has_grown] == []
