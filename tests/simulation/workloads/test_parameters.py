"""Workloads by name: what they are told, and what is said of a wrong parameter."""

import pytest

from scheduler.model.document_reader import DocumentError
from workbench.simulation.workloads.gamma import Gamma
from workbench.simulation.workloads.registry import WORKLOADS, parse_workload


def test_parameters_are_camel_case_as_in_documents():
    """The names of YAML give the fields of the code."""
    workload = parse_workload("gamma", {"rateRps": 4, "cv": 2, "together": True}, "test")
    assert workload == Gamma(rate_rps=4.0, cv=2.0, together=True)


@pytest.mark.parametrize(
    ("name", "parameters", "messages"),
    [
        (
            "flood",
            {},
            ["the workload: 'flood' is unknown; it is one of paper, poisson, periodic, "],
        ),
        ("paper", {}, ["workload paper: load: is missing"]),
        ("paper", {"load": "huge"}, ["workload paper: load: Input should be 'light', 'normal' or"]),
        ("poisson", {"rateRps": 0}, ["workload poisson: rateRps: Input should be greater than or"]),
        (
            "poisson",
            {"rateRps": {}},
            ["workload poisson: rateRps: Dictionary should have at least"],
        ),
        (
            "poisson",
            {"rateRps": {"a": "4"}},
            ["workload poisson: rateRps.a: Input should be a val"],
        ),
        (
            "poisson",
            {"rate_rps": 4, "rateRps": float("nan")},
            [
                "workload poisson: rateRps: Input should be a finite number (given: nan)",
                "workload poisson: rate_rps: unknown parameter; remove or rename it",
            ],
        ),
        ("gamma", {"rateRps": 1, "cv": 0}, ["workload gamma: cv: Input should be greater than or"]),
        ("generated", {"workflowOf": "x"}, ["workload generated: workflowOf: Input should be 'ro"]),
        ("azure", {"file": "x", "workflowOf": {"f": 1}}, ["workload azure: workflowOf.f: Input"]),
    ],
)
def test_a_wrong_parameter_is_told(name, parameters, messages):
    """Each of them, with the place that it was read from."""
    with pytest.raises(DocumentError) as raised:
        parse_workload(name, parameters, "scenario.yaml")
    lines = str(raised.value).splitlines()
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(f"scenario.yaml: {message}")


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_parameter_is_described(name):
    """The reference is made of it."""
    for field in WORKLOADS[name].model_fields.values():
        assert field.description
