"""The main job: kube-scheduler places the stages of workflows on shared GPUs, through us."""

from collections import defaultdict

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.planner import Planner, PlanRequest
from tests.e2e.conftest import SAMPLES, documents_in, plan_on, sample_workflows
from tests.testbed.observations import peak_use

GPU_MEMORY_MIB = 81_920
SERVER_CONTEXT_MIB = 1_024
NODE_CPUS = 64
NEWS_S = 2.0


def test_two_hundred_instances_of_four_workflows(esg):
    """Every pod is bound once, consistently, and every instance is counted once.

    No GPU is promised beyond what it has at any observed moment, the plan on a pod is the
    planner's, and successors follow their predecessors wherever there is room.
    """
    documents = with_room_for_the_control_plane(documents_in(SAMPLES))
    bed = esg(nodes=20, gpus=8, cpu=NODE_CPUS, documents=documents)
    run = bed.drive(200, interval_s=0.05, deadline_s=600)
    assert len(run.finished_s) == 200

    bound = {seen.uid: seen for seen in run.observations if seen.node}
    assert len(bound) == 50 * (3 + 3 + 3 + 5)
    nodes = {
        gpu["uuid"]: node["name"]
        for node in bed.get("/v1/snapshot").json()["nodes"]
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
                gpu_models=frozenset({plan["gpu_model"]}),
            )
        )
        assert again.feasible == plan["feasible"]
        assert again.candidates[plan["rank"]].as_json().items() <= plan.items()

    for uuid, peak in peak_use(run.observations).items():
        assert peak.percent <= 100, uuid
        assert peak.memory_mib <= GPU_MEMORY_MIB - SERVER_CONTEXT_MIB, uuid
        assert peak.clients <= 48, uuid
    assert bed.metric("esg_gpu_overcommitted") == 0

    followed, left = successors(run.observations, nodes)
    assert left == []
    assert followed > 250

    assert bed.metric("esg_workflow_requests_total") == 200
    assert bed.metric("esg_workflow_duration_seconds_count") == 200
    assert bed.cluster_holds() == {}
    assert bed.snapshot_holds() == {}


def with_room_for_the_control_plane(documents):
    """The samples with 5 s more: a mocked cluster on few cores takes seconds to make pods run.

    With their own SLOs of about a second most plans would be the fastest ones, of whole GPUs.
    """
    for document in documents:
        if document["kind"] == "Workflow":
            document["spec"]["slo"]["latencyMs"] += 5_000
    return documents


def successors(observations, node_of_gpu):
    """How many successors ran on a predecessor's node, and those that did not though it had room.

    A node had room if, at every observed moment from the successor's creation to its binding, one
    of its GPUs had the share and memory that were planned, and the node the vCPUs. What ended less
    than `NEWS_S` before counts as held: the extender has a watch of its own, and on a busy machine
    hears of an end so much later than the driver.
    """
    holds = holding_intervals(observations)
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
    followed, left = 0, []
    for seen in first_bound.values():
        homes = {
            where[seen.labels["request"], stage]
            for stage in before[seen.labels["workflow"], seen.labels["stage"]]
        }
        if seen.node in homes:
            followed += 1
            continue
        start, plan = created[seen.uid] - NEWS_S, plan_on(seen.annotations)
        left += [
            (seen.name, node)
            for node in homes
            if had_room(holds, node, plan, start, seen.at_s, node_of_gpu, skip=seen.uid)
        ]
    return followed, left


def holding_intervals(observations):
    """For each pod: its node, GPU, percent, MiB, vCPUs, and from when to when it held them."""
    holds = {}
    for seen in observations:
        if seen.node and seen.uid not in holds:
            plan = plan_on(seen.annotations)
            holds[seen.uid] = [
                seen.node, seen.annotations["gpu"], plan["gpu_percent"], plan["memory_mib"],
                plan["cpu"], seen.at_s, float("inf"),
            ]  # fmt: skip
        if seen.ended and seen.uid in holds:
            holds[seen.uid][-1] = min(holds[seen.uid][-1], seen.at_s)
    return holds


def had_room(holds, node, plan, start, end, node_of_gpu, *, skip):
    """Whether the node could hold the plan at every moment between start and end."""
    there = [
        hold
        for uid, hold in holds.items()
        if uid != skip and hold[0] == node and hold[5] <= end and hold[6] >= start
    ]
    # Taken together, as if all had been there at once: then there was room at every moment.
    percent, memory, cpu = defaultdict(int), defaultdict(int), 0
    for _, gpu, hold_percent, hold_memory, hold_cpu, _, _ in there:
        percent[gpu] += hold_percent
        memory[gpu] += hold_memory
        cpu += hold_cpu
    return cpu + plan["cpu"] <= NODE_CPUS and any(
        percent[gpu] + plan["gpu_percent"] <= 100
        and memory[gpu] + plan["memory_mib"] <= GPU_MEMORY_MIB - SERVER_CONTEXT_MIB
        for gpu, home in node_of_gpu.items()
        if home == node
    )
