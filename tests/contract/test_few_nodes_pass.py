"""How many nodes filter lets through, and for whom it lets all through."""

import pytest

from scheduler.extender.pods import states_preference
from tests.extender.cases import DOCUMENTS, node, pod
from tests.extender.serving import embedded

PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


@pytest.mark.parametrize(
    ("spec", "states"),
    [
        ({}, False),
        ({"affinity": None, "topologySpreadConstraints": []}, False),
        ({"affinity": {"nodeAffinity": {"requiredDuringScheduling": {}}}}, False),
        ({"affinity": "nonsense"}, False),
        ({"affinity": {"nodeAffinity": "nonsense", "podAffinity": None}}, False),
        ({"affinity": {"nodeAffinity": PREFERRED}}, True),
        ({"affinity": {"podAntiAffinity": PREFERRED}}, True),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, True),
    ],
)
def test_a_pod_that_says_what_it_prefers_is_shown_all_nodes(spec, states):
    """Only what kube-scheduler's scores would heed counts; nonsense is no preference."""
    assert states_preference({"spec": spec}) is states


@pytest.fixture(scope="module")
def forty():
    """A service over forty nodes, of which filter lets ten through."""
    names = [f"n{number:02}" for number in range(40)]
    nodes = [node(name, cpu="64") for name in names]
    with embedded(nodes=nodes, documents=DOCUMENTS, filter_nodes_max=10) as extender:
        yield extender, names


def test_the_best_pass_and_nobody_is_refused(forty):
    """Ten of forty nodes that all hold the pod pass; they are those that prioritize likes best."""
    extender, names = forty
    asked = pod("tenth")
    answer = extender.filter(asked, *names)
    assert len(answer["NodeNames"]) == 10
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
    scores = {each["Host"]: each["Score"] for each in extender.prioritize(asked, *names)}
    least = min(scores[name] for name in answer["NodeNames"])
    assert all(scores[name] <= least for name in set(names) - set(answer["NodeNames"]))


def test_a_pod_with_a_preference_passes_everywhere(forty):
    """Its preferred affinity is kube-scheduler's to weigh, over all nodes that hold it."""
    extender, names = forty
    asked = pod("tenth")
    asked["spec"]["affinity"] = {"nodeAffinity": PREFERRED}
    assert extender.filter(asked, *names)["NodeNames"] == names
