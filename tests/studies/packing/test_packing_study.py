"""The study of docs/placement.md: which pods its rules expect."""

from studies.packing.rules import RuleName
from studies.packing.study import SELECTED, Study, page
from tests.studies.packing.traces import machine, pod


def test_pods_of_several_gpus_are_expected_only_where_they_come():
    """Nodes of one GPU are all fragment for a pod of two, and none for pods of one."""
    pods = [*(pod(f"p{i}", gpu_percent=100) for i in range(4)), pod("two", gpus=2, gpu_percent=100)]
    study = Study(pods, [machine(f"n{i}", gpus=1) for i in range(4)], seeds=1)
    outcome = study.run()
    assert set(outcome.single) == set(SELECTED)
    for fillings, empty_percent in ((outcome.inflated, 20.0), (outcome.single, 0.0)):
        first = fillings[RuleName.FGD][0].curve[0]
        assert first.fragmentation_percent == empty_percent
    assert page(study, outcome).startswith("# Filling a cluster\n")
