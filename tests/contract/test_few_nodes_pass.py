"""Number of nodes that filter passes: one by default, all for a pod with a preference."""

import pytest

from scheduler.planning.pods import states_preference
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import embedded

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
    """Only what kube-scheduler's scores use counts; an invalid value is no preference."""
    assert states_preference({"spec": spec}) is states


@pytest.fixture(scope="module")
def forty():
    """A service over forty nodes; filter passes ten."""
    names = [f"n{number:02}" for number in range(40)]
    nodes = [node(name, cpu="64") for name in names]
    with embedded(nodes=nodes, documents=DOCUMENTS, filter_nodes_max=10) as extender:
        yield extender, names


def test_the_best_pass_and_nobody_is_refused(forty):
    """Ten of forty feasible nodes pass; they are those with the best scores."""
    extender, names = forty
    pending = pod("tenth")
    answer = extender.filter(pending, *names)
    assert len(answer["NodeNames"]) == 10
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}
    scores = {entry["Host"]: entry["Score"] for entry in extender.prioritize(pending, *names)}
    lowest = min(scores[name] for name in answer["NodeNames"])
    assert all(scores[name] <= lowest for name in set(names) - set(answer["NodeNames"]))


def test_a_pod_with_a_preference_passes_everywhere(forty):
    """kube-scheduler weighs its preferred affinity over all feasible nodes."""
    extender, names = forty
    pending = pod("tenth")
    pending["spec"]["affinity"] = {"nodeAffinity": PREFERRED}
    assert extender.filter(pending, *names)["NodeNames"] == names
