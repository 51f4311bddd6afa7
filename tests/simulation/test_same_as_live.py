"""The simulator and the live service place the same pods on the same GPUs under the same grants.

A run of the simulator is gone through again, dispatch by dispatch: each becomes a pod that the
service, over its HTTP port and a cluster in memory, is asked to filter and to bind at the same
moment of a clock that both share. Nothing is left to chance, and times are whole milliseconds, for
the simulator plans in those.

Where functions run one at a time, all is the same. Where they overlap, two things differ on
principle, and nothing else does:

- The simulator knows containers, the service nodes: to it a node is warm while the function runs
  there, to the simulator only while a container is free there.
- A pod carries the label of one request. Where a batch ran, the service knows for its oldest
  request alone which node has the output.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from unittest import mock

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.slo.stage_waits import StageWaits
from tests.extender import factories
from tests.extender.harness import Clock, embedded
from tests.simulation.harness import Listed, run
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow
from workbench.simulation.containers.cluster import SimulatedCluster, nodes_of
from workbench.simulation.policies.planned import Exact
from workbench.simulation.result import Span
from workbench.simulation.scenario import Scenario

SCENARIO = Scenario(
    resizable=True,
    nodes=6,
    gpus_per_node=2,
    noise_ratio=0.0,
    warm_containers=0,
    prewarm=False,
    placement="pack",
    misses_max=0,
    margin_ratio=0.1,
)
ALONE_MS = 3_000  # longer than any request takes


def whole_ms(function):
    """A generated profile in whole ms; its containers start at once, its output is everywhere."""
    profile = generated_profile(function)
    gpus = tuple(
        gpu.model_copy(
            update={
                "configurations": tuple(
                    item.model_copy(update={"latency_ms": float(ceil(item.latency_ms))})
                    for item in gpu.configurations
                )
            }
        )
        for gpu in profile.spec.gpus
    )
    update = {"gpus": gpus, "cold_start_ms": 0.0, "output_mib": 0.0}
    return profile.model_copy(update={"spec": profile.spec.model_copy(update=update)})


DOCUMENTS = (*map(generated_workflow, WORKFLOWS), *map(whole_ms, FUNCTIONS))
CATALOGUE = Catalogue.of(DOCUMENTS)
KEYS = tuple(CATALOGUE.workflows)


@dataclass(frozen=True)
class Dispatched:
    """A run that began in the simulator; how many waited, and when the oldest of them arrived."""

    span: Span
    queued: int
    arrival_ms: int

    @property
    def request(self):
        """No two arrive at the same time."""
        return f"r-{self.arrival_ms}"

    @property
    def workflow(self):
        return CATALOGUE.workflow(*KEYS[self.span.workflow])

    def pod(self):
        """Return the pod that its creator would write."""
        arrival = datetime.fromtimestamp(self.arrival_ms / 1000, UTC)
        return factories.pod(
            workflow=self.workflow.metadata.name,
            stage=self.span.stage,
            request=self.request,
            annotations={
                "arrival": arrival.isoformat(timespec="milliseconds"),
                "queued": str(self.queued),
            },
        )


def simulated(scenario, times_ms, numbers):
    """Events under `exact`, in order: a run that begins, or the container of one that ended.

    At one moment there may be a run between the ends of two others, so times alone do not tell.
    """
    queue_state, events = [0, 0], []

    class Watched(Exact):
        def candidates(self, question):
            slo_ms = CATALOGUE.workflow(*question.key[:2]).spec.slo.latency_ms
            arrival_ms = round(question.now_ms + question.slack_ms - slo_ms)
            queue_state[:] = question.queued, arrival_ms
            return super().candidates(question)

    class Ends(SimulatedCluster):
        def end(self, container, now_ms):
            super().end(container, now_ms)
            events.append((now_ms, container.number))

    arrivals = Listed(times_ms, numbers, KEYS)
    recording = run(
        scenario,
        CATALOGUE,
        arrivals,
        Watched,
        # A run begins right after the policy call that led to it.
        on_span=lambda span: events.append(Dispatched(span, *queue_state)),
        cluster=Ends,
    )
    assert recording.result.dropped == 0
    return events


@contextmanager
def live(scenario):
    """The service over the same nodes and documents, and the clock, which begins at the epoch."""
    nodes = [
        factories.node(
            node.name,
            len(node.gpus),
            inventory=f"[{','.join(gpu.model_dump_json() for gpu in node.gpus)}]",
        )
        for node in nodes_of(scenario)
    ]
    clock = Clock(0.0)
    with embedded(
        nodes=nodes,
        documents=DOCUMENTS,
        clock=clock,
        placement=scenario.placement,
        filter_nodes_max=1,  # filter returns the best node
        margin_ratio=scenario.margin_ratio,
        on_lost_slo=scenario.rules.on_lost_slo,
    ) as extender:
        yield extender, clock


@dataclass(frozen=True)
class Placed:
    """A dispatch, and what the service says to it."""

    span: Span
    node: str  # the best one
    granted: dict  # on the simulator's node
    running: frozenset[str]  # nodes where the function runs
    led: bool  # whether its request was the oldest wherever it ran before


def placed_live(scenario, happened):
    """Ask the service for each dispatch, and let it run where it ran in the simulator.

    The service holds back the waits that it observes between stages, and the simulator's plans hold
    back none, so they are left out here.
    """
    with mock.patch.object(StageWaits, "later_ms", return_value=0.0):
        return _placed_live(scenario, happened)


def _placed_live(scenario, happened):
    names = [node.name for node in nodes_of(scenario)]
    results, pods, oldest = [], {}, set()
    with live(scenario) as (extender, clock):
        for item in happened:
            if isinstance(item, tuple):
                now_ms, container = item
                clock.now_s = now_ms / 1000
                extender.finish(pods.pop(container)[1])
                continue
            span, pod = item.span, item.pod()
            clock.now_s = span.begin_ms / 1000
            (node,) = extender.filter(pod, *names)["NodeNames"]
            assert extender.bind(pod, span.node) == ""
            granted = extender.explain(pod)["granted"]
            running = {on.node for on, _ in pods.values() if on.function == span.function}
            before = item.workflow.stage(span.stage).after
            led = oldest.issuperset((item.request, stage) for stage in before)
            oldest.add((item.request, span.stage))
            results.append(Placed(span, node, granted, frozenset(running), led))
            pods[span.container] = span, pod
    return results


def assert_same_grant(placed):
    span, granted = placed.span, placed.granted
    assert granted["plan"]["batch"] == span.batch
    assert granted["plan"]["cpu"] == span.cpu
    assert granted["gpu_percent"] == span.gpu_percent
    assert granted["memory_mib"] == span.memory_mib


@pytest.mark.replaces
def test_one_at_a_time_all_is_the_same():
    """Configuration, node and GPU of every dispatch, wherever the function ran before."""
    numbers = [0, 1, 2, 3, 0, 3, 1, 2, 2, 0]
    times_ms = [ALONE_MS * i for i in range(len(numbers))]
    results = placed_live(SCENARIO, simulated(SCENARIO, times_ms, numbers))
    assert len(results) == sum(len(CATALOGUE.workflow(*KEYS[i]).spec.stages) for i in numbers)
    assert len({placed.span.node for placed in results}) > 1
    for placed in results:
        assert_same_grant(placed)
        assert placed.node == placed.span.node
        assert placed.granted["gpu"] == placed.span.gpu


@pytest.mark.replaces
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "gap_ms"), [(12, 30), (8, 12)])
def test_overlapping_only_two_things_differ(nodes, gap_ms):
    """Every grant is the same; where a node is another one, it is for one of the two reasons."""
    scenario = SCENARIO.model_copy(update={"nodes": nodes, "gpus_per_node": 1})
    random = np.random.default_rng(5)
    times_ms = np.cumsum(random.integers(1, 2 * gap_ms, 120)).tolist()
    numbers = random.integers(0, len(KEYS), len(times_ms)).tolist()
    results = placed_live(scenario, simulated(scenario, times_ms, numbers))
    elsewhere = [placed for placed in results if placed.node != placed.span.node]
    for placed in results:
        assert_same_grant(placed)
    for placed in elsewhere:
        assert placed.node in placed.running or not placed.led, placed
    assert 0 < len(elsewhere) < len(results) / 5
