"""The main job: kube-scheduler and the extender place stages of workflows on shared GPUs."""

from collections import defaultdict

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.search.planner import Planner, PlanRequest
from tests.e2e.conftest import plan_on, sample_documents, sample_workflows
from tests.testbed.observations import peak_use

GPU_MEMORY_MIB = 81_920
SERVER_CONTEXT_MIB = 1_024
NODE_CPUS = 64
WATCH_DELAY_S = 5.0


def test_two_hundred_instances_of_four_workflows(esg):
    """Every pod is bound once, consistently, and every instance is counted once.

    No GPU is overcommitted at any observed moment, the plan on a pod is the planner's, and
    successors run on the nodes of their predecessors if these have room.
    """
    documents = with_room_for_the_control_plane(sample_documents())
    harness = esg(nodes=20, gpus=8, cpu=NODE_CPUS, documents=documents)
    run = harness.drive(200, interval_s=0.05, deadline_s=600)
    assert len(run.finished_s) == 200

    bound = {seen.uid: seen for seen in run.observations if seen.node}
    assert len(bound) == 50 * (3 + 3 + 3 + 5)
    nodes = {
        gpu["uuid"]: node["name"]
        for node in harness.get("/v1/snapshot").json()["nodes"]
        for gpu in node["gpus"]
    }
    planner = Planner(
        Catalogue.of(
            (Workflow if raw["kind"] == "Workflow" else FunctionProfile).model_validate(raw)
            for raw in documents
        )
    )
    for seen in bound.values():
        plan = plan_on(seen.annotations)
        assert nodes[seen.annotations["gpu"]] == seen.node
        assert seen.annotations["gpu-percent"] == str(plan["gpu_percent"])
        assert seen.annotations["gpu-memory"] == f"0={plan['memory_mib']}M"
        assert seen.annotations["batch"] == str(plan["batch"])
        again = planner.plan(
            PlanRequest(
                namespace="default",
                workflow=seen.labels["workflow"],
                stage=seen.labels["stage"],
                slack_ms=plan["budget_ms"],
                fleet=FleetCapacity.of_models([plan["gpu_model"]]),
            )
        )
        assert again.feasible == plan["feasible"]
        assert again.candidates[plan["rank"]].as_json().items() <= plan.items()

    for uuid, peak in peak_use(run.observations).items():
        assert peak.percent <= 100, uuid
        assert peak.memory_mib <= GPU_MEMORY_MIB - SERVER_CONTEXT_MIB, uuid
        assert peak.clients <= 48, uuid
    assert harness.wait_agreement() == {}
    assert harness.metric_count("esg_gpu_overcommitted") == 0

    followed, exceptions = successors(run.observations, nodes)
    assert exceptions == []
    assert followed > 250

    assert harness.metric_count("esg_workflow_requests_total") == 200
    assert harness.metric_count("esg_workflow_duration_seconds_count") == 200


def with_room_for_the_control_plane(documents):
    """Add 5 s to the samples' SLOs: a mocked cluster on few cores needs seconds to start pods.

    With the original SLOs of about a second, most plans would be the fastest, on whole GPUs.
    """
    for document in documents:
        if document["kind"] == "Workflow":
            document["spec"]["slo"]["latencyMs"] += 5_000
    return documents


def successors(observations, node_of_gpu):
    """Count successors on a predecessor's node; list the others whose node had room.

    A node had room if, at every observed moment from the successor's creation to its binding, one
    of its GPUs had the planned share and memory free, and the node the vCPUs. A reservation counts
    until `WATCH_DELAY_S` after its end: the extender has its own watch, which on a busy machine
    reports an end later than the driver's.
    """
    reservations = reservation_intervals(observations)
    created = {seen.uid: seen.at_s for seen in reversed(observations) if seen.event == "ADDED"}
    first_bound = {}
    for seen in observations:
        if seen.node:
            first_bound.setdefault(seen.uid, seen)
    where = {(s.labels["request"], s.labels["stage"]): s.node for s in first_bound.values()}
    before = {
        (workflow["metadata"]["name"], stage["name"]): stage.get("after", ())
        for workflow in sample_workflows()
        for stage in workflow["spec"]["stages"]
    }
    followed, exceptions = 0, []
    for seen in first_bound.values():
        homes = {
            where[seen.labels["request"], stage]
            for stage in before[seen.labels["workflow"], seen.labels["stage"]]
        }
        if seen.node in homes:
            followed += 1
            continue
        start_s, plan = created[seen.uid] - WATCH_DELAY_S, plan_on(seen.annotations)
        exceptions += [
            (seen.name, node)
            for node in homes
            if had_room(reservations, node, plan, start_s, seen.at_s, node_of_gpu, skip=seen.uid)
        ]
    return followed, exceptions


def reservation_intervals(observations):
    """Return node, GPU, percent, MiB, vCPUs, start and end of every pod's reservation."""
    reservations = {}
    for seen in observations:
        if seen.node and seen.uid not in reservations:
            plan = plan_on(seen.annotations)
            reservations[seen.uid] = [
                seen.node, seen.annotations["gpu"], plan["gpu_percent"], plan["memory_mib"],
                plan["cpu"], seen.at_s, float("inf"),
            ]  # fmt: skip
        if seen.ended and seen.uid in reservations:
            reservations[seen.uid][-1] = min(reservations[seen.uid][-1], seen.at_s)
    return reservations


def had_room(reservations, node, plan, start_s, end_s, node_of_gpu, *, skip):
    """Return true if the node always had room for the plan between `start_s` and `end_s`."""
    overlapping = [
        reservation
        for uid, reservation in reservations.items()
        if uid != skip
        and reservation[0] == node
        and reservation[5] <= end_s
        and reservation[6] >= start_s
    ]
    # The sum of all overlapping reservations is an upper bound of every moment.
    percent, memory, cpu = defaultdict(int), defaultdict(int), 0
    for _, gpu, pod_percent, pod_memory, pod_cpu, _, _ in overlapping:
        percent[gpu] += pod_percent
        memory[gpu] += pod_memory
        cpu += pod_cpu
    return cpu + plan["cpu"] <= NODE_CPUS and any(
        percent[gpu] + plan["gpu_percent"] <= 100
        and memory[gpu] + plan["memory_mib"] <= GPU_MEMORY_MIB - SERVER_CONTEXT_MIB
        for gpu, home in node_of_gpu.items()
        if home == node
    )
