"""Events on Workflows whose configurations no node can hold."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.extender.capacity_report import CHANGES_MAX
from scheduler.model.documents import to_manifest
from tests.extender.factories import node, workflow
from tests.extender.harness import Clock, Extender, embedded
from tests.extender.test_fleet_capacity import function

LARGE, SMALL = (32, 4_000, 10.0), (4, 4_000, 300.0)


@dataclass
class Events:
    """Records events as they are sent to the cluster."""

    sent: list[tuple[str, str, str, str]] = field(default_factory=list)

    def record(self, reference: Any, **event: str) -> None:
        kind = f"{event['type']} {event['reason']}"
        self.sent.append((reference.kind, reference.name, kind, event["message"]))

    def names(self) -> list[str]:
        return [name for _, name, _, _ in self.sent]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """The events of a service that looks for something to report all the time."""
    recorded = Events()
    monkeypatch.setattr("scheduler.extender.service.UPKEEP_S", 0.01)
    monkeypatch.setattr(
        "tests.extender.embedded_cluster.EmbeddedCluster.record_event",
        lambda _, reference, **event: recorded.record(reference, **event),
    )
    return recorded


def wait_until(extender: Extender, condition: Any) -> None:
    """Let the service run until the condition holds."""
    for _ in range(1_000):
        if condition():
            return
        extender.get("/healthz")
    pytest.fail("the event was not sent")


def test_a_workflow_with_configurations_that_no_node_holds(events):
    """One warning lists them; a larger node silences it, and its removal repeats it."""
    documents = [function("f", LARGE, SMALL), function("g", SMALL), workflow("w", 500, "f")]
    documents.append(workflow("sound", 500, "g"))
    with embedded(nodes=[node("n1")], documents=documents, clock=Clock()) as extender:
        wait_until(extender, lambda: events.sent)
        [(kind, name, reason, message)] = events.sent
        assert (kind, name, reason) == ("Workflow", "w", "Warning ConfigurationsFitNoNode")
        assert message.startswith("function f: no node can hold 1 of 2 configurations on ")
        assert "(32 vCPU, 10 % GPU and 4,000 MiB)" in message
        nodes, report = extender.service.state.nodes, extender.service.capacity_report
        extender.on_loop(nodes.upsert, node("n2", cpu="64"))
        wait_until(extender, lambda: not report.reported)
        extender.on_loop(nodes.delete, node("n2"))
        wait_until(extender, lambda: len(events.sent) == 2)
        assert events.sent[1] == events.sent[0]


def test_a_changed_profile(events):
    """The report is that of the present profile."""
    documents = [function("f", SMALL), workflow("w", 500, "f")]
    with embedded(nodes=[node("n1")], documents=documents, clock=Clock()) as extender:
        profiles = extender.service.state.documents.profiles
        extender.on_loop(profiles.upsert, to_manifest(function("f", LARGE, SMALL)))
        wait_until(extender, lambda: events.names() == ["w"])
        extender.on_loop(profiles.delete, to_manifest(function("f", SMALL)))
        wait_until(extender, lambda: not extender.service.capacity_report.reported)


def test_many_workflows(events):
    """They are reported a few at a time, and each once."""
    count = 2 * CHANGES_MAX + 1
    workflows = [workflow(f"w{i}", 500, "f") for i in range(count)]
    documents = [function("f", LARGE, SMALL), *workflows]
    with embedded(nodes=[node("n1")], documents=documents, clock=Clock()) as extender:
        wait_until(extender, lambda: len(events.sent) >= count)
        assert len(set(events.names())) == len(events.names()) == count
