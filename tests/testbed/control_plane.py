"""A control plane: etcd, API server, controller manager, kube-scheduler and KWOK."""

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from tests.testbed import REPOSITORY, audit, commands, kubeconfig, kubernetes_release
from tests.testbed.api import Api, tls_context, wait_until
from tests.testbed.pki import Authority, Certificate
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard
from workbench.cluster.process import free_port

START_TIMEOUT_S = 180.0
"""On two cores that also compiled something, an API server took 25 s."""

API_SERVER = "kube-apiserver"
API_SERVER_GRACE_S = 0.5
"""The API server would wait up to a minute for open watches; it cuts them, as in a crash."""

KWOK_CONFIGS = [
    REPOSITORY / "deploy" / "kwok" / name for name in ("kwok.yaml", "nodes.yaml", "pods.yaml")
]


class ControlPlane:
    """A Kubernetes control plane on free ports of 127.0.0.1.

    At the end of the context its programs stop in reverse order. `start_scheduler` starts
    kube-scheduler once its configuration and extender are known.

    Args:
        workdir: an exclusive folder for data, keys and `logs/`; created if absent.
        gates: feature gates to open in API server and kube-scheduler. Default: none.
        apis: versions of the API to serve that are off by default. Default: none.
    """

    def __init__(
        self, workdir: Path, *, gates: Sequence[str] = (), apis: Sequence[str] = ()
    ) -> None:
        self._gates, self._apis = gates, apis
        self.logs = workdir / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._workdir = workdir
        self._authority = Authority(workdir / "pki")
        self._token_signing_key = self._authority.signing_key("service-accounts")
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.ca = self._authority.certificate
        self.admin = self.client_certificate("admin", ("system:masters",))
        self.kubeconfig = self.kubeconfig_for("admin", ("system:masters",))
        self.scheduler_kubeconfig = self.kubeconfig_for("system:kube-scheduler")
        self.api = self.api_as(self.admin)
        self._guard = Guard()
        self._processes: list[Process] = []
        self._programs: dict[str, Path] = {}
        self._parts: list[Process] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Build missing programs, start all, and return when pods can be created.

        Raises:
            GoMissingError, BuildFailedError: see `binaries`.
            StartFailedError: a program did not start; the message ends with its log's tail.
        """
        names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
        self._programs = kubernetes_release.build(names)
        self._start_etcd_and_api_server()
        self._start_controller_manager()
        self._start_kwok()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: self.api.exists(account), what=account, timeout_s=START_TIMEOUT_S)
        self._parts = list(self._processes)

    def reset(self) -> None:
        """Stop programs started since `start` (schedulers, extenders), and restart stopped ones."""
        self._restore_parts()
        self.named(API_SERVER).wait_ready(self.api.is_ready, timeout_s=START_TIMEOUT_S)

    def is_preexisting(self, kind: str, name: str) -> bool:
        """Return true if the object existed before the tests; none did on this control plane."""
        del kind, name
        return False

    def stop(self) -> None:
        """Stop all programs, those of `process` included; harmless when called twice."""
        for process in reversed(self._processes):
            process.stop(grace_s=API_SERVER_GRACE_S if process.name == API_SERVER else 10)
        self._processes.clear()
        self.api.close()
        self._guard.close()

    def process(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> Process:
        """Return a further program (not started) that logs here and ends with the control plane."""
        process = Process(
            name, command, log_folder=self.logs, guard=self._guard, environment=environment
        )
        self._processes.append(process)
        return process

    def processes(self) -> list[Process]:
        """Return all programs in the order of their start."""
        return list(self._processes)

    @property
    def audit_log(self) -> Path:
        """File with the requests of the service's users; see `audit`."""
        return self.logs / "audit.log"

    def named(self, name: str) -> Process:
        """Return the program of this name."""
        return next(process for process in self._processes if process.name == name)

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> Certificate:
        """Create a certificate for a user; RBAC decides its rights by name and groups."""
        return self._authority.client(_file_name(user), user, groups)

    def server_certificate(self, file_name: str, names: tuple[str, ...] = ()) -> Certificate:
        """Create a certificate for a server at 127.0.0.1 (a webhook), signed by `ca`."""
        return self._authority.server(file_name, names)

    def kubeconfig_for(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Write a kubeconfig for such a user."""
        return kubeconfig.write(
            self._workdir / f"{_file_name(user)}.kubeconfig",
            url=self.url,
            ca=self.ca,
            certificate=self.client_certificate(user, groups),
        )

    def api_as(self, certificate: Certificate) -> Api:
        """Return a client for the bearer of the certificate; the caller closes it."""
        return Api(self.url, tls_context(self.ca, certificate))

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of an administrator's HTTP client for `url`."""
        return tls_context(self.ca, self.admin)

    def stop_api_server(self) -> None:
        """Stop the API server; etcd holds its data, and its port stays reserved."""
        self.named(API_SERVER).stop(grace_s=API_SERVER_GRACE_S)

    def start_api_server(self) -> None:
        """Start it again on the same port with the same data; return when it is ready."""
        process = self.named(API_SERVER)
        process.start()
        process.wait_ready(self.api.is_ready, timeout_s=START_TIMEOUT_S)

    def start_scheduler(self, config_text: str) -> Process:
        """Start kube-scheduler with this KubeSchedulerConfiguration; see `scheduler_config.render`.

        Return when it is healthy; that does not depend on its extender.
        """
        config = self._workdir / "kube-scheduler-config.yaml"
        config.write_text(config_text, encoding="utf-8")
        port = free_port()
        command = commands.scheduler(
            self._programs["kube-scheduler"],
            config=config,
            kubeconfig=self.scheduler_kubeconfig,
            port=port,
            gates=self._gates,
        )
        return self._run("kube-scheduler", command, f"https://127.0.0.1:{port}/healthz")

    def _restore_parts(self) -> None:
        for process in reversed(self._processes):
            if process not in self._parts:
                process.stop()
        self._processes = list(self._parts)
        for process in self._parts:
            if process.pid is None:
                process.start()

    def _start_etcd_and_api_server(self) -> None:
        etcd_port = free_port()
        command = commands.etcd(
            self._programs["etcd"],
            data=self._workdir / "etcd",
            client_port=etcd_port,
            peer_port=free_port(),
        )
        self._run("etcd", command, f"http://127.0.0.1:{etcd_port}/readyz")
        command = commands.api_server(
            self._programs[API_SERVER],
            ca=self.ca,
            serving=self._authority.server("kube-apiserver", ("localhost", "kubernetes")),
            token_signing_key=self._token_signing_key,
            port=self._port,
            etcd_port=etcd_port,
            audit_policy=audit.write_policy(self._workdir / "audit-policy.json"),
            audit_log=self.audit_log,
            gates=self._gates,
            apis=self._apis,
        )
        # Saves an eighth of its CPU for 300 MB with thousands of pods.
        self.process(API_SERVER, command, environment={"GOGC": "200"})
        self.start_api_server()

    def _start_controller_manager(self) -> None:
        user, port = "system:kube-controller-manager", free_port()
        command = commands.controller_manager(
            self._programs["kube-controller-manager"],
            kubeconfig=self.kubeconfig_for(user, ("system:masters",)),
            port=port,
            token_signing_key=self._token_signing_key,
            ca=self.ca,
            ca_key=self._authority.key,
        )
        self._run("kube-controller-manager", command, f"https://127.0.0.1:{port}/healthz")

    def _start_kwok(self) -> None:
        port = free_port()
        command = commands.kwok(
            self._programs["kwok"],
            kubeconfig=self.kubeconfig_for("kwok", ("system:masters",)),
            configs=KWOK_CONFIGS,
            port=port,
        )
        self._run("kwok", command, f"http://127.0.0.1:{port}/healthz")

    def _run(self, name: str, command: Sequence[str], health_url: str) -> Process:
        process = self.process(name, command)
        process.start()
        process.wait_ready(lambda: _answers(health_url), timeout_s=START_TIMEOUT_S)
        return process


def _answers(url: str) -> bool:
    """Return true if a health endpoint answers 200; its own certificate is not verified."""
    try:
        return httpx.get(url, verify=False, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _file_name(user: str) -> str:
    return user.replace(":", "-")
