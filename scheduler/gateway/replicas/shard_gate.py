"""Passes documents and pods on to the runtime, for the shards that this replica owns."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.calls import CallError
from scheduler.gateway.discovery.documents import DocumentListener
from scheduler.gateway.discovery.function_servers import Listener, PoolListener
from scheduler.gateway.discovery.holder_pods import HolderPod
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.replicas.shards import SHARDS, shard_of
from scheduler.gateway.run_times import longest_run_s
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.function_server import FunctionServer


class ShardGate:
    """Knows all documents and pods; its listeners know those of open shards.

    Args:
        documents: listener of workflows and profiles; profiles are those of all shards.
        pods: listener of servers and their pods.
        pool: listener of pods of templates, if the gateway creates pods.
    """

    def __init__(
        self, documents: DocumentListener, pods: Listener, pool: PoolListener | None = None
    ) -> None:
        self._documents = documents
        self._listener = pods
        self._pool = pool
        self._open = [False] * SHARDS
        self._paused = [False] * SHARDS
        self._workflows: dict[WorkflowKey, Workflow] = {}
        self._servers: dict[FunctionKey, tuple[FunctionServer, FunctionProfile]] = {}
        self._pool_pods: dict[str, tuple[FunctionServer, Mapping[str, Any]]] = {}
        self._holders: dict[str, HolderPod] = {}
        self._pods: dict[str, ServerPod] = {}
        self._hold_timers: dict[str, asyncio.TimerHandle] = {}  # pods with a former owner's runs

    # -- shards --------------------------------------------------------------------------------

    def open(self, shard: int, *, hold: bool) -> None:
        """Pass on what belongs to a shard, from now on.

        Args:
            shard: index of the shard.
            hold: true if runs of a former owner can be on the shard's pods: each of these is not
                ready for the longest time that a run takes.
        """
        self._open[shard], self._paused[shard] = True, False
        for key, workflow in self._workflows.items():
            if shard_of(key[0]) == shard:
                self._documents.set_workflow(workflow)
        for function, served in self._servers.items():
            if shard_of(function[0]) == shard:
                self._listener.set_server(*served)
        if self._pool is not None:
            self._open_pool(shard, self._pool, is_clean=not hold)
        for name, pod in self._pods.items():
            if self._shard(name) == shard:
                if hold:
                    self._hold(pod)
                self._add_pod(pod)

    def _open_pool(self, shard: int, pool: PoolListener, *, is_clean: bool) -> None:
        for namespace in {name for name, _ in self._servers}:
            if shard_of(namespace) == shard:
                pool.take_over(namespace, is_clean=is_clean)
        for name, holder in self._holders.items():
            if self._shard(name) == shard:
                pool.holder_changed(holder)
        for name, pool_pod in self._pool_pods.items():
            if self._shard(name) == shard:
                pool.pool_pod_changed(*pool_pod)

    def pause(self, shard: int) -> None:
        """Give the pods of a shard no further batches; those that they have go on."""
        self._paused[shard] = True
        for name, pod in self._pods.items():
            is_held = name in self._hold_timers
            if self._shard(name) == shard and not is_held and _is_ready(pod):
                self._listener.drain_pod(name)

    def close(self, shard: int) -> None:
        """Withdraw what belongs to a shard; batches on its pods end without an answer."""
        if not self._open[shard]:
            return
        self._end_holds(shard)
        for name in self._pods:
            if self._shard(name) == shard:
                self._listener.remove_pod(name)
        for name, holder in self._holders.items():
            if self._pool is not None and self._shard(name) == shard:
                self._pool.holder_gone(holder.namespace, holder.name)
        for function in self._servers:
            if shard_of(function[0]) == shard:
                self._listener.remove_server(function)
        for key in self._workflows:
            if shard_of(key[0]) == shard:
                self._documents.remove_workflow(key)
        self._open[shard] = False

    def is_held(self, shard: int) -> bool:
        """Return true while pods of a shard wait for a former owner's runs."""
        return any(self._shard(name) == shard for name in self._hold_timers)

    def has_pods(self, namespace: str, name: str, stage: str | None) -> bool:
        """Return true if each function of a workflow, or of a stage, has a ready pod.

        Raises:
            CallError: 404; the workflow or its stage is not known.
        """
        workflow = self._workflows.get((namespace, name))
        stages = () if workflow is None else workflow.spec.stages
        functions = {s.function for s in stages if stage in {None, s.name}}
        if not functions:
            what = f"workflow {name}" if stage is None else f"stage {stage} of workflow {name}"
            raise CallError(404, f"{what} is not known in namespace {namespace}; correct the path")
        ready = {pod.function for pod in self._pods.values() if _is_ready(pod)}
        return all((namespace, function) in ready for function in functions)

    def _hold(self, pod: ServerPod) -> None:
        profile = self._servers[pod.function][1]
        timer = asyncio.get_running_loop().call_later(
            longest_run_s(profile), self._released, pod.name
        )
        self._hold_timers[pod.name] = timer

    def _end_holds(self, shard: int) -> None:
        for name in [name for name in self._hold_timers if self._shard(name) == shard]:
            self._hold_timers.pop(name).cancel()

    def _released(self, name: str) -> None:
        del self._hold_timers[name]
        pod = self._pods.get(name)
        if pod is not None and _is_ready(pod) and self._gets_batches(name):
            self._listener.pod_ready(name)

    # -- reports of documents ------------------------------------------------------------------

    def set_profile(self, profile: FunctionProfile) -> None:
        """Pass a profile on."""
        self._documents.set_profile(profile)

    def set_workflow(self, workflow: Workflow) -> None:
        """Add or replace a workflow."""
        self._workflows[workflow.key] = workflow
        if self._open[shard_of(workflow.key[0])]:
            self._documents.set_workflow(workflow)

    def remove_workflow(self, key: WorkflowKey) -> None:
        """Remove a workflow."""
        self._workflows.pop(key, None)
        if self._open[shard_of(key[0])]:
            self._documents.remove_workflow(key)

    # -- reports of servers and pods -------------------------------------------------------------

    def set_server(self, server: FunctionServer, profile: FunctionProfile) -> None:
        """Add or change a server."""
        self._servers[server.function_key] = server, profile
        if self._open[shard_of(server.function_key[0])]:
            self._listener.set_server(server, profile)

    def remove_server(self, function: FunctionKey) -> None:
        """Remove a server."""
        self._servers.pop(function, None)
        if self._open[shard_of(function[0])]:
            self._listener.remove_server(function)

    def pool_pod_changed(self, server: FunctionServer, raw: Mapping[str, Any]) -> None:
        """Take the state of a pod of a template."""
        metadata = raw["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        self._pool_pods[name] = server, raw
        if self._pool is not None and self._is_open(name):
            self._pool.pool_pod_changed(server, raw)

    def pool_pod_gone(self, name: str) -> None:
        """Handle the deletion of a pod."""
        self._pool_pods.pop(name, None)
        if self._pool is not None and self._is_open(name):
            self._pool.pool_pod_gone(name)

    def holder_changed(self, holder: HolderPod) -> None:
        """Take the state of a holder of a slice."""
        name = f"{holder.namespace}/{holder.name}"
        self._holders[name] = holder
        if self._pool is not None and self._is_open(name):
            self._pool.holder_changed(holder)

    def holder_gone(self, namespace: str, name: str) -> None:
        """Handle the deletion of a pod, a holder or not."""
        self._holders.pop(f"{namespace}/{name}", None)
        if self._pool is not None and self._open[shard_of(namespace)]:
            self._pool.holder_gone(namespace, name)

    def take_over(self, namespace: str, *, is_clean: bool) -> None:
        """Do nothing: shards are taken over by `open`."""

    def add_pod(self, pod: ServerPod) -> None:
        """Add a pod."""
        self._pods[pod.name] = pod
        if self._is_open(pod.name):
            self._add_pod(pod)

    def _add_pod(self, pod: ServerPod) -> None:
        gets_batches = self._gets_batches(pod.name)
        self._listener.add_pod(pod if gets_batches else replace(pod, ready=False))

    def pod_ready(self, name: str) -> None:
        """Give a pod batches, unless it is held."""
        self._pods[name] = replace(self._pods[name], ready=True, draining=False)
        if self._gets_batches(name):
            self._listener.pod_ready(name)

    def drain_pod(self, name: str) -> None:
        """Give a pod no further batches."""
        self._pods[name] = replace(self._pods[name], ready=False)
        if self._gets_batches(name):
            self._listener.drain_pod(name)

    def remove_pod(self, name: str) -> None:
        """Remove a pod; if it is held, it still is when it is added again."""
        self._pods.pop(name, None)
        if self._is_open(name):
            self._listener.remove_pod(name)

    def _is_open(self, name: str) -> bool:
        return self._open[self._shard(name)]

    def _gets_batches(self, name: str) -> bool:
        return (
            self._is_open(name)
            and name not in self._hold_timers
            and not self._paused[self._shard(name)]
        )

    @staticmethod
    def _shard(name: str) -> int:
        return shard_of(name.partition("/")[0])


def _is_ready(pod: ServerPod) -> bool:
    return pod.ready and not pod.draining
