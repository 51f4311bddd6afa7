"""A played cluster of known numbers, as the documents that the live page reads."""

GPU_MODEL = "NVIDIA A100-SXM4-80GB"


def pod(name, function, percent, *, pool="", slice_percent=0, memory_mib=8192):
    """Return a reservation on a GPU."""
    return {
        "name": name, "function": function, "gpu_percent": percent, "memory_mib": memory_mib,
        "pool": pool, "slice_percent": slice_percent,
    }  # fmt: skip


def gpu(uuid, pods=(), *, healthy=True):
    """Return a GPU of 80 GiB with these pods."""
    return {
        "uuid": uuid, "model": GPU_MODEL, "healthy": healthy, "memory_mib": 81920,
        "free_memory_mib": 81920 - sum(p["memory_mib"] for p in pods),
        "free_percent": 100 - sum(p["gpu_percent"] for p in pods), "pods": list(pods),
    }  # fmt: skip


def node(name, gpus):
    """Return a node."""
    return {"name": name, "cpu_milli": 64_000, "cpu_free_milli": 40_500, "gpus": list(gpus)}


def workflow(name, **changed):
    """Return a workflow of the overview."""
    return {
        "namespace": "vision", "name": name, "slo_ms": 400.0, "objective": 0.99,
        "in_slo_5m": 0.995, "in_slo_1h": 0.992, "budget_burnt_1h": 0.8, "per_s": 123.4,
        "p50_ms": 120.0, "p99_ms": 380.0, "cold_starts_1h": 7.0, "ran_per_1000": 0.0123,
        "set_aside_per_1000": 0.0456, "bound_per_1000": 0.01,
        "stages": [{"name": "detect", "function": "detect", "after": []}],
        "minutes": [[0.99 + 0.0001 * (i % 30), 100.0] for i in range(60)], **changed,
    }  # fmt: skip


def function(name, **changed):
    """Return a function of the overview."""
    return {
        "namespace": "vision", "name": name, "ready": 3, "starting": 1, "draining": 0, "wanted": 4,
        "queued_rows": 12, "shares": {"30 %, 2 vCPU, A100": 4}, "rows_per_batch": 3.25,
        "run_over_profile": 1.08, "dollars_per_hour": 3.5, **changed,
    }  # fmt: skip


STAGE = {
    "stage": "detect", "pod": "vision/detect-0", "node": "n0", "gpu_model": GPU_MODEL, "cpu": 2,
    "gpu_percent": 30, "pooled": False, "rows": 4, "planned_batch": 4, "since_ms": 1.0,
    "begin_ms": 301.0, "execute_ms": 301.0, "ended_ms": 421.0, "planned_end_ms": 391.0,
    "profiled_ms": 90.0, "slack_ms": 99.0, "served_as_late": False, "critical": True, "error": "",
    "cold_start_ms": 250.0, "queue_ms": 50.0, "share_ms": 0.0, "run_ms": 120.0,
    "profile_ms": 90.0, "over_profile_ms": 30.0,
}  # fmt: skip
NEXT = STAGE | {
    "stage": "classify", "pod": "vision/classify-1", "since_ms": 421.0, "begin_ms": 430.0,
    "cold_start_ms": 0.0, "queue_ms": 9.0, "run_ms": 50.0, "profile_ms": 50.0,
    "over_profile_ms": 0.0, "profiled_ms": 50.0, "slack_ms": -30.0,
}  # fmt: skip
LINE = {
    "id": "0badcafe-1", "client_id": None, "trace_id": None, "namespace": "vision",
    "workflow": "street", "only_stage": None, "arrived": "2026-01-01T12:34:56.789+00:00",
    "result": "miss", "error": "", "latency_ms": 480.0, "allowed_ms": 400.0, "late_ms": 80.0,
    "cause": "cold_start", "explanation": "it waited for the start of a pod",
}  # fmt: skip
REQUEST = LINE | {
    "parts_ms": {"receive": 1.0, "cold_start": 250.0, "queue": 59.0, "profile": 140.0,
                 "over_profile": 30.0},
    "stages": [STAGE, NEXT], "waits": [],
}  # fmt: skip
WAITING = {
    "pod": "vision/detect-9", "uid": "u", "ours": True, "error": "", "selected_candidate": None,
    "plan": {"feasible": True, "message": ""}, "feasible_nodes": 0,
    "reasons": {"no GPU has 30 % free": 12, "no GPU of a model of the profile": 3},
}  # fmt: skip

PLAN = {
    "workflow": "vision/street", "error": "", "stage": "detect", "slo_ms": 400.0,
    "slack_ms": 400.0, "path_ms": 300.0, "cost": 2e-5, "covers_workflow": True, "remarks": [],
    "models": [GPU_MODEL], "feasible": True, "budget_ms": 390.0, "margin_ratio": 0.02,
    "later_waits_ms": 0.0, "epsilon": 0.0, "message": "",
    "curves": [{"name": "minimum cost (exact)", "points": [[120.0, 9e-5], [180.0, 5e-5],
                                                           [300.0, 2e-5], [600.0, 1e-5]]}],
    "candidates": [
        {"batch": 4, "cpu": 2, "gpu_percent": 30, "memory_mib": 1800, "gpu_model": GPU_MODEL,
         "start_ms": 0.0, "stage_ms": 200.0, "path_ms": 300.0, "path_cost": 2e-5},
        {"batch": 2, "cpu": 2, "gpu_percent": 40, "memory_mib": 1600, "gpu_model": GPU_MODEL,
         "start_ms": 0.0, "stage_ms": 150.0, "path_ms": 250.0, "path_cost": 3e-5},
    ],
    "completion": [
        {"stage": name, "function": name, "batch": 4, "cpu": 2, "gpu_percent": 30,
         "memory_mib": 1800, "gpu_model": GPU_MODEL, "from_ms": begin, "to_ms": end, "cost": 1e-5,
         "budget_from_ms": budget, "budget_to_ms": budget + 200.0}
        for name, begin, end, budget in (("detect", 0.0, 210.0, 0.0),
                                         ("classify", 210.0, 300.0, 200.0))
    ],
}  # fmt: skip


def played():
    """Return a cluster with two workflows, one of them below its objective."""
    gpus = [
        gpu("GPU-0", [pod("vision/detect-0", "detect", 30), pod("vision/detect-1", "detect", 30),
                      pod("vision/classify-1", "classify", 20)]),
        gpu("GPU-1", [pod("vision/holder-0", "", 60, pool="holder", memory_mib=0),
                      pod("vision/ocr-0", "ocr", 0, pool="member", slice_percent=40)]),
        gpu("GPU-2"),
        gpu("GPU-3", healthy=False),
    ]  # fmt: skip
    overview = {
        "time": 0.0, "seconds": 3600.0,
        "workflows": [
            workflow("street"),
            workflow("receipts", in_slo_5m=0.91, in_slo_1h=0.95, budget_burnt_1h=5.0,
                     minutes=[[0.97 - 0.001 * i, 20.0] for i in range(60)]),
        ],
        "functions": [function("detect"), function("classify"),
                      function("ocr", shares={}, dollars_per_hour=None)],
        "group": "",
        "pools": {"vision": 4.5},
        "running_pods": ["vision/detect-0", "vision/ocr-0"], "problems": {}, "not_ready": "",
    }  # fmt: skip
    return {
        "/v1/overview": overview,
        "/v1/gpus": {
            "pending": ["vision/detect-9"],
            "pending_pods": 1,
            "clients_max": 48,
            "nodes": [node("gpu-node-a", gpus[:2]), node("gpu-node-b", gpus[2:])],
        },
        "/v1/requests": [LINE],
        "/v1/requests/": {"0badcafe-1": REQUEST},
        "/v1/pending/": {"vision:detect-9": WAITING},
        "/v1/plans/": {
            "vision:street": PLAN,
            "vision:broken": {"workflow": "vision/broken", "error": "function x has no profile"},
        },
    }


EXTENDERS = ("/v1/gpus", "/v1/pending/", "/v1/plans/")
"""Paths of the documents that a gateway reads from the extender."""


def parts(documents):
    """Return the documents of a gateway, and those of its extender."""
    extender = {path: documents[path] for path in EXTENDERS}
    return {path: documents[path] for path in documents if path not in extender}, extender


def empty():
    """Return a cluster without documents, nodes and requests."""
    overview = {"time": 0.0, "seconds": 0.0, "workflows": [], "functions": [], "group": "",
                "pools": {}, "running_pods": [], "problems": {}, "not_ready": ""}  # fmt: skip
    return {
        "/v1/overview": overview,
        "/v1/gpus": {"pending": [], "pending_pods": 0, "clients_max": 48, "nodes": []},
        "/v1/requests": [],
        "/v1/requests/": {},
        "/v1/pending/": {},
        "/v1/plans/": {},
    }


def idle_workflow():
    """Return a workflow that has had no request."""
    nothing = dict.fromkeys(("in_slo_5m", "in_slo_1h", "budget_burnt_1h", "p50_ms", "p99_ms"))
    prices = dict.fromkeys(("ran_per_1000", "set_aside_per_1000", "bound_per_1000"))
    return workflow("unused", per_s=0.0, minutes=[], **nothing, **prices)


def large(nodes=1_000, gpus_per_node=8):
    """Return a large cluster, with two shares on each GPU."""
    documents = played()
    documents["/v1/gpus"]["nodes"] = [
        node(
            f"node-{n:04}",
            [
                gpu(f"GPU-{n}-{g}", [pod(f"vision/detect-{n}-{g}", "detect", 30),
                                     pod(f"vision/classify-{n}-{g}", "classify", 20)])
                for g in range(gpus_per_node)
            ],
        )
        for n in range(nodes)
    ]  # fmt: skip
    return documents
