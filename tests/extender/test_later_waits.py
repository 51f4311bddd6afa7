"""Observed waits of later stages, held back by the plans of earlier ones."""

from typing import Any

import pytest

from scheduler.extender.replay import replay
from tests.extender.factories import node, pod, profile
from tests.extender.harness import Clock, Extender, embedded
from workbench.profiles.builders import graph

CHEAP, FAST = 20, 90
CHAIN = graph({"first": ["f"], "second": ["slow", "first"]}, name="chain", slo_ms=950)
DOCUMENTS = (profile("f", (CHEAP, 400), (FAST, 100)), profile("slow", (CHEAP, 400)), CHAIN)
WAIT_S = 0.2  # of the second stage


@pytest.fixture
def extender(clock: Clock) -> Any:
    """A service over one node."""
    with embedded(
        nodes=[node("n1", 2)], documents=DOCUMENTS, clock=clock, margin_ratio=0
    ) as extender:
        yield extender


def run(extender: Extender, clock: Clock, request: str) -> list[int]:
    """Serve one request; return the shares of its stages."""
    shares = []
    for stage in ("first", "second"):
        raw = pod(workflow="chain", stage=stage, request=request)
        shares.append(extender.place(raw, "n1")["gpu_percent"])
        clock.now_s += 0.4 if shares[-1] == CHEAP else 0.1
        extender.finish(raw)
        clock.now_s += WAIT_S
    return shares


def test_a_wait_that_was_observed_is_held_back(extender: Extender, clock: Clock) -> None:
    """The first request is late by its wait; for the next one the first stage runs faster."""
    assert run(extender, clock, "r1") == [CHEAP, CHEAP]
    assert run(extender, clock, "r2") == [FAST, CHEAP]
    waiting = pod(workflow="chain", stage="first", request="r3")
    extender.filter(waiting, "n1")
    [replayed] = replay(extender.get("/v1/snapshot"))
    assert replayed == extender.explain(waiting)
    assert replayed["plan"]["later_waits_ms"] == pytest.approx(1000 * WAIT_S)
    assert replayed["plan"]["budget_ms"] == pytest.approx(950 - 1000 * WAIT_S)
