"""Histories of a workflow's pods, as a cluster would report them to a tracker."""

from scheduler.model.pod import function_pod
from scheduler.slo.tracker import Tracker
from workbench.profiles.builders import graph

WORKFLOW = graph(
    {"a": ["f"], "b": ["g", "a"], "c": ["g", "a"], "d": ["f", "b", "c"]}, name="diamond"
)


class ClusterHistory:
    """Reports pod states to a tracker, and records what it reports."""

    def __init__(self):
        self.stages = []
        self.requests = []
        self.emptied = []
        self.workflow = WORKFLOW
        self.function = "f"
        self.tracker = Tracker(
            workflow_of=lambda namespace, name: self.workflow if name == "diamond" else None,
            on_stage=lambda ended, raw: self.stages.append(ended),
            on_request=self.requests.append,
            on_empty=self.emptied.append,
            abandoned_after_s=60,
            keep_alive_s=100,
        )

    def pod(self, stage, at_s, phase="Pending", *, live=True, **options):
        raw = self.raw(stage, phase, **options)
        self.tracker.observe(raw, function_pod(raw), self.function, at_s, live=live)

    @staticmethod
    def raw(stage, phase="Pending", *, node=None, request="r1", **annotations):
        return {
            "metadata": {
                "name": f"{request}-{stage}",
                "namespace": "default",
                "uid": f"{request}-{stage}",
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": {
                    "esg-scheduler.io/workflow": "diamond",
                    "esg-scheduler.io/stage": stage,
                    "esg-scheduler.io/request": request,
                },
                "annotations": {f"esg-scheduler.io/{k}": v for k, v in annotations.items()},
            },
            "spec": {"nodeName": node} if node else {},
            "status": {"phase": phase},
        }

    def run(self, stage, start_s, end_s, node="n1", **annotations):
        self.pod(stage, start_s, **annotations)
        self.pod(stage, start_s + 0.1, node=node, **annotations)
        self.pod(stage, start_s + 0.2, "Running", node=node, **annotations)
        self.pod(stage, end_s, "Succeeded", node=node, **annotations)

    def results(self):
        return [(ended.result, ended.duration_s) for ended in self.requests]
