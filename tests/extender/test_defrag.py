"""ESG_PLACEMENT=defrag: a pod goes where it adds least fragmentation for the request mix."""

import pytest

from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import embedded


@pytest.mark.parametrize(("placement", "gpu"), [("pack", "GPU-n1-0"), ("defrag", "GPU-n1-1")])
def test_the_last_half_is_kept_for_halves(placement, gpu):
    """A tenth packs onto the half-full GPU, unless halves are the usual request."""
    with embedded(nodes=[node("n1", 2)], documents=DOCUMENTS, placement=placement) as extender:
        assert extender.place(pod("half"), "n1")["gpu"] == "GPU-n1-0"
        tenth = pod("tenth")
        assert extender.filter(tenth, "n1")["NodeNames"] == ["n1"]
        assert extender.bind(tenth, "n1") == ""
        assert extender.explain(tenth)["granted"]["gpu"] == gpu


def test_the_node_that_loses_less_scores_more():
    """Among nodes that are neither warm nor home, the one whose last half is broken is worst."""
    names = [f"n{number}" for number in range(6)]
    nodes = [node(name) for name in names]
    with embedded(nodes=nodes, documents=DOCUMENTS, placement="defrag") as extender:
        halves = names[::2]
        for name in halves:
            extender.place(pod("half"), name)
        scores = {s["Host"]: s["Score"] for s in extender.prioritize(pod("tenth"), *names)}
    [home] = [name for name, score in scores.items() if score > 5]
    del scores[home]
    assert {scores[name] for name in halves if name != home} == {0}
    assert {scores[name] for name in names if name not in {home, *halves}} == {5}
