"""A listener that keeps what discovery reports, and checks the order of its calls."""

from typing import Any

from scheduler.gateway.discovery.server_pods import ServerPod


class RecordingListener:
    """The state that follows from the calls.

    Attributes:
        servers: by namespace and function, the spec of the server and of its profile.
        pods: by name.
        open: names of pods that get batches.
        calls: names of the methods and of what they concern, in order.
    """

    def __init__(self) -> None:
        self.servers: dict[tuple[str, str], Any] = {}
        self.pods: dict[str, ServerPod] = {}
        self.open: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def set_server(self, server, profile):
        self.calls.append(("set_server", server.metadata.name))
        self.servers[server.function_key] = server.spec, profile.spec

    def remove_server(self, function):
        self.calls.append(("remove_server", function[1]))
        assert not [pod for pod in self.pods.values() if pod.function == function]
        del self.servers[function]

    def add_pod(self, pod):
        self.calls.append(("add_pod", pod.name))
        assert pod.name not in self.pods
        assert pod.function in self.servers
        self.pods[pod.name] = pod
        if pod.ready and not pod.draining:
            self.open.add(pod.name)

    def pod_ready(self, name):
        self.calls.append(("pod_ready", name))
        assert name in self.pods
        assert name not in self.open
        self.open.add(name)

    def drain_pod(self, name):
        self.calls.append(("drain_pod", name))
        self.open.remove(name)

    def remove_pod(self, name):
        self.calls.append(("remove_pod", name))
        del self.pods[name]
        self.open.discard(name)
