"""Real processes on the loopback, and sound requests for each of their ports."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

from scheduler.model.documents import to_manifest
from scheduler.model.yaml_parser import parse_yaml
from tests.fuzz.grpc_client import GrpcPort
from tests.fuzz.http_client import HttpPort
from tests.fuzz.mutations import HttpRequest, json_request
from tests.gateway.factories import pod, profile, server, workflow
from tests.oip import grpc_twin
from tests.testbed import REPOSITORY
from tests.testbed.pki import Authority
from workbench.cluster.api_requests import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    KINDS,
    NODES,
    PODS,
    WORKFLOWS,
)
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.extender import binding_arguments, extender_arguments
from workbench.cluster.model_server import PlayedModelServer, ServedRun
from workbench.cluster.object_store import ObjectStore
from workbench.cluster.process import Program, free_port, programs, wait_until

_ESG = (sys.executable, "-c", "from scheduler.cli.commands import app; app()")
_HOST = "127.0.0.1"
_SAMPLE_S = 0.05
BODIES_MIB = 32
"""Memory for bodies of requests in the gateway, so that a flood of them shows its limit."""
_UNAVAILABLE = frozenset({503})
_GATEWAY = frozenset({501, 502, 503, 504, 505})
"""502: the model server's answer cannot be used; 501, 505: the front's own refusals."""


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """One HTTP port.

    Attributes:
        name: for reports.
        port: its address.
        requests: sound ones.
        documented: statuses of 500 and more that it may answer with.
    """

    name: str
    port: HttpPort
    requests: tuple[HttpRequest, ...]
    documented: Collection[int] = _UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Targets:
    """All ports, and the processes behind them."""

    http: tuple[HttpTarget, ...]
    grpc: GrpcPort
    programs: tuple[Program, ...]

    def resident_mib(self) -> dict[str, float]:
        """Return the memory of each process with its children, MiB."""
        return {program.name: _resident_mib(program.process.pid) for program in self.programs}

    @asynccontextmanager
    async def peak_mib(self) -> AsyncIterator[dict[str, float]]:
        """Keep the largest memory of each process while inside, MiB."""
        peaks = self.resident_mib()

        async def sample() -> None:
            while not self.ended():
                for name, mib in self.resident_mib().items():
                    peaks[name] = max(peaks[name], mib)
                await asyncio.sleep(_SAMPLE_S)

        sampling = asyncio.create_task(sample())
        try:
            yield peaks
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)

    def ended(self) -> list[str]:
        """Return the names of the processes that have ended."""
        return [p.name for p in self.programs if p.process.returncode is not None]


class _ModelServer(PlayedModelServer):
    """Doubles any numbers, and closes the connection on what it cannot read."""

    def begin(self, run: ServedRun) -> int:
        """Store nothing of a run: hundreds of thousands of them would take all memory."""
        return 1

    def outputs(self, inputs: Any, number: int) -> Any:
        first = next(iter(inputs.values()))
        return super().outputs({"x": first, **inputs}, number)

    async def _exchange(self, reader: Any, writer: Any) -> bool:
        try:
            return await super()._exchange(reader, writer)
        except (KeyError, TypeError, ValueError, StopIteration):
            return False


@asynccontextmanager
async def running_targets() -> AsyncIterator[Targets]:
    """Run extender, webhook, gateway and agent over an API server in memory."""
    store = ObjectStore(KINDS)
    model_server = _ModelServer(slots=8)
    with TemporaryDirectory() as folder:
        async with (
            programs() as running,
            ApiServer(store).serving() as url,
            model_server.serving(),
        ):
            _create_objects(store, model_server.port)
            kubeconfig = Path(folder, "kubeconfig")
            write_kubeconfig(kubeconfig, url)
            certificate = Authority(Path(folder, "pki")).server("hook", ("localhost",))
            ports = {name: free_port() for name in ("extender", "webhook", "gateway", "agent")}
            health = {name: free_port() for name in ports}
            grpc_port = free_port()
            environment = {
                "extender": {"ESG_HOST": _HOST, "ESG_PORT": str(ports["extender"])},
                "webhook": {
                    "ESG_WEBHOOK_HOST": _HOST,
                    "ESG_WEBHOOK_PORT": str(ports["webhook"]),
                    "ESG_TLS_CERT": str(certificate.certificate),
                    "ESG_TLS_KEY": str(certificate.key),
                },
                "gateway": {
                    "ESG_GATEWAY_HOST": _HOST,
                    "ESG_GATEWAY_PORT": str(ports["gateway"]),
                    "ESG_GATEWAY_GRPC_PORT": str(grpc_port),
                    "ESG_GATEWAY_MEMORY_MAX_MIB": str(BODIES_MIB),
                },
                "agent": {"ESG_AGENT_HOST": _HOST, "ESG_AGENT_PORT": str(ports["agent"])},
            }
            commands = {
                "extender": ("serve",),
                "webhook": ("webhook",),
                "gateway": ("gateway",),
                "agent": ("agent", "--node", "n1"),
            }
            started = [
                await running.start(
                    name,
                    [*_ESG, *commands[name], f"--kubeconfig={kubeconfig}"],
                    environment={
                        "ESG_LOG_LEVEL": "error",
                        "ESG_HEALTH_HOST": _HOST,
                        "ESG_HEALTH_PORT": str(health[name]),
                        **environment[name],
                    },
                )
                for name in ports
            ]
            targets = Targets(_http_targets(ports, health), _grpc_target(grpc_port), tuple(started))
            for target in targets.http:
                await wait_until(lambda target=target: _answers(target), target.name)
            try:
                yield targets
            finally:
                await targets.grpc.close()


async def _answers(target: HttpTarget) -> bool:
    """Tell if all sound requests of a port have the expected answer."""
    for request in target.requests:
        try:
            status = await target.port.status(request.wire())
        except OSError:
            return False
        if request.expected and status != request.expected:
            return False
    return True


def _create_objects(store: ObjectStore, model_port: int) -> None:
    for node in parse_yaml((REPOSITORY / "deploy/nodes/mocked-16x1.yaml").read_text()):
        store.create(NODES, node)
    for document in parse_yaml((REPOSITORY / "deploy/samples/profiles.yaml").read_text()):
        store.create(FUNCTION_PROFILES, document)
    store.create(FUNCTION_PROFILES, to_manifest(profile()))
    store.create(WORKFLOWS, workflow(slo_ms=600_000))  # no deadline on a busy machine
    store.create(FUNCTION_SERVERS, server(port=model_port))
    store.create(PODS, pod(host=_HOST, ports=[{"containerPort": model_port}]))


def _http_targets(ports: dict[str, int], health: dict[str, int]) -> tuple[HttpTarget, ...]:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    probes = tuple(HttpRequest("GET", f"/{path}") for path in ("healthz", "readyz", "metrics"))
    # Without a driver the agent is healthy for a while, and never ready.
    agent = (HttpRequest("GET", "/metrics"), HttpRequest("GET", "/healthz", expected=0))
    return (
        HttpTarget("extender", HttpPort(ports["extender"]), _extender_requests()),
        HttpTarget("extender's health", HttpPort(health["extender"]), probes),
        HttpTarget("webhook", HttpPort(ports["webhook"], tls), _webhook_requests()),
        HttpTarget("webhook's health", HttpPort(health["webhook"]), probes),
        HttpTarget("gateway", HttpPort(ports["gateway"]), _gateway_requests(), _GATEWAY),
        HttpTarget("gateway's health", HttpPort(health["gateway"]), probes),
        HttpTarget("agent", HttpPort(ports["agent"]), agent),
    )


def _function_pod() -> dict[str, Any]:
    labels = {"esg-scheduler.io/workflow": "w", "esg-scheduler.io/stage": "f"}
    requests = {"cpu": "2", "esg-scheduler.io/gpu-percent": "28"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "fuzz",
            "namespace": "n",
            "uid": "fuzz",
            "labels": labels,
            "annotations": {"esg-scheduler.io/deadline": "2099-01-01T00:00:00Z"},
        },
        "spec": {
            "priority": 10,
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "env": [{"name": "A", "value": "b"}],
                    "resources": {"requests": requests, "limits": requests},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
            "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "affinity": {"nodeAffinity": {}},
        },
        "status": {"phase": "Pending", "nominatedNodeName": "mock-01"},
    }


def _extender_requests() -> tuple[HttpRequest, ...]:
    nodes = [f"mock-{number:02}" for number in range(3)]
    arguments = extender_arguments(_function_pod(), nodes)
    whole = {"items": [{"metadata": {"name": name}} for name in nodes]}
    victims = {"mock-01": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}
    preemption = {"Pod": _function_pod(), "NodeNameToVictims": None}
    return (
        json_request("/filter", arguments),
        json_request("/filter", arguments | {"Nodes": whole, "NodeNames": None}),
        json_request("/prioritize", arguments),
        json_request("/bind", binding_arguments(_function_pod(), "mock-01")),
        json_request("/preempt", preemption | {"NodeNameToMetaVictims": victims}),
        HttpRequest("GET", "/v1/explain/n/p"),
        HttpRequest("GET", "/v1/snapshot"),
        HttpRequest("GET", "/metrics"),
        HttpRequest("GET", "/openapi.json"),
        HttpRequest("GET", "/readyz"),
    )


def _webhook_requests() -> tuple[HttpRequest, ...]:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review",
            "operation": "CREATE",
            "namespace": "n",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": _function_pod(),
        },
    }
    return (json_request("/mutate", review),)


def _gateway_requests() -> tuple[HttpRequest, ...]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 1], "data": [1.0, 2.0]}
    body = {"inputs": [tensor], "outputs": [{"name": "y"}], "parameters": {"timeout": 600_000_000}}
    return (
        json_request("/n/v2/models/w/infer", body),
        json_request("/n/v2/models/w/stages/f/infer", body | {"id": "i"}),
        HttpRequest("GET", "/n/v2/models/w"),
        HttpRequest("GET", "/n/v2/models/w/ready"),
        HttpRequest("GET", "/v2/health/ready"),
        HttpRequest("GET", "/v2"),
    )


def _grpc_target(port: int) -> GrpcPort:
    array = np.array([[1.0], [2.0]], np.float32)
    message = grpc_twin.message(grpc_twin.Request, [("x", "FP32", array)], model_name="n/w")
    return GrpcPort(port, message.SerializeToString())


def _resident_mib(pid: int) -> float:
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(member.memory_info().rss for member in family) / 2**20
