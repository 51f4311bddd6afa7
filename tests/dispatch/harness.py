"""Harness of the dispatcher's tests: documents, and an owner that records what it is asked for."""

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import Pod, PodState, Share
from scheduler.dispatch.requests import PlainPart
from scheduler.model.documents import FunctionProfile, Workflow
from workbench.profiles.builders import GPU

SPACE = "default"


class Owner:
    """Records all that a dispatcher asks for.

    ``parts`` are those with which each request enters each stage.
    """

    def __init__(self, documents, *, parts=None, **settings):
        self.runs, self.ended, self.dropped = [], [], []
        self.parts = parts or (lambda request, stage, rows_max: [PlainPart()])
        self.dispatcher = Dispatcher(self)
        for document in documents:
            if isinstance(document, FunctionProfile):
                self.dispatcher.set_profile(document)
        for document in documents:
            if isinstance(document, Workflow):
                self.dispatcher.set_workflow(document, now_ms=0.0, **settings)

    def enter(self, request, stage, rows_max):
        return self.parts(request, stage, rows_max)

    def begin(self, run):
        self.runs.append(run)

    def end(self, request, job, now_ms):
        self.ended.append(request)

    def drop(self, request, job, reason, now_ms):
        self.dropped.append((request, reason))

    @property
    def open_runs(self):
        return [run for run in self.runs if not run.ended]

    def pod(
        self,
        name,
        function="f0",
        *,
        cpu=1,
        percent=50,
        memory_mib=1_600,
        ready=True,
        now_ms=0.0,
        **of,
    ):
        """Add a pod."""
        state = PodState.READY if ready else PodState.STARTING
        share = Share(GPU, cpu, percent, memory_mib)
        pod = Pod(name, (SPACE, function), share, state=state, **of)
        self.dispatcher.add_pod(pod, now_ms)
        return pod

    def arrive(self, payload=None, *, now_ms=0.0, name="w", **of):
        return self.dispatcher.arrive((SPACE, name), payload, now_ms=now_ms, **of)
