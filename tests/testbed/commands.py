"""Command lines of the control plane's programs, with a reason for each value that is no default.

Pure functions from paths and ports to arguments. All are chosen for two cores: no sync to disk, no
audit but of our accounts, no profiling, no leader election, no unused controller.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.pki import Certificate

CONTROLLERS = (
    "node-lifecycle-controller",  # takes the not-ready taint off a new node
    "taint-eviction-controller",
    "serviceaccount-controller",  # no pod is admitted in a namespace without the account `default`
    "namespace-controller",
    "pod-garbage-collector-controller",  # removes the pods of a node that is gone
    "garbage-collector-controller",
    "clusterrole-aggregation-controller",  # without it the role `view` is empty
    "disruption-controller",  # budgets count in preemption
    "resourcequota-controller",  # quotas on gpu-percent
    "job-controller",
    "deployment-controller",
    "replicaset-controller",
    "horizontal-pod-autoscaler-controller",
    "certificatesigningrequest-signing-controller",  # users, in the tests of an external cluster
    "resourceclaim-controller",  # claims from templates; deletes the claims of ended pods
    "validatingadmissionpolicy-status-controller",  # checks the types in policies, as in the chart
)

NODE_GRACE = "20m"
"""Limit between two heartbeats of a node; deploy/kwok/nodes.yaml sends one every 5 minutes."""

UNLIMITED_QPS = 5000


def etcd(program: Path, *, data: Path, client_port: int, peer_port: int) -> list[str]:
    """Return the command of one etcd member without durability: its data end with the tests."""
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(program),
        "--name=testbed",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=testbed={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def api_server(
    program: Path,
    *,
    ca: Path,
    serving: Certificate,
    token_signing_key: Path,
    port: int,
    etcd_port: int,
    audit_policy: Path,
    audit_log: Path,
    gates: Sequence[str] = (),
    apis: Sequence[str] = (),
) -> list[str]:
    """Return the command of an API server with RBAC, so that a missing right fails a test.

    ``gates`` are feature gates to open, and ``apis`` versions to serve, that are off by default.
    """
    return [
        str(program),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        # The API server refuses a loopback address as an endpoint of its own service.
        "--endpoint-reconciler-type=none",
        f"--client-ca-file={ca}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={token_signing_key}",
        f"--service-account-signing-key-file={token_signing_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=Node,RBAC",
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={audit_log}",
        "--allow-privileged=true",
        # Its queues would delay the bursts that tests send; the plain limits are raised.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        "--delete-collection-workers=8",  # thousands of pods are deleted between two tests
        "--profiling=false",
        *([f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}"] if gates else []),
        *([f"--runtime-config={','.join(f'{api}=true' for api in apis)}"] if apis else []),
    ]


def controller_manager(
    program: Path,
    *,
    kubeconfig: Path,
    port: int,
    token_signing_key: Path,
    ca: Path,
    ca_key: Path,
) -> list[str]:
    """Return the command of all controllers, under one identity with all rights."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={token_signing_key}",
        f"--root-ca-file={ca}",
        f"--cluster-signing-cert-file={ca}",
        f"--cluster-signing-key-file={ca_key}",
        f"--node-monitor-grace-period={NODE_GRACE}",
        f"--kube-api-qps={UNLIMITED_QPS}",
        f"--kube-api-burst={2 * UNLIMITED_QPS}",
        "--horizontal-pod-autoscaler-sync-period=1s",  # Kubernetes' is 15 s
        "--profiling=false",
    ]


def scheduler(
    program: Path, *, config: Path, kubeconfig: Path, port: int, gates: Sequence[str] = ()
) -> list[str]:
    """Return the command of an unmodified kube-scheduler with a configuration file, as the chart's.

    ``gates`` are feature gates to open that are closed by default.

    With asynchronous preemption, a pod that preempts may wait five minutes
    (kubernetes/kubernetes#141694). Kubernetes has it by default since 1.33.
    """
    release = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    minor = int(release.stdout.split(".")[1])
    values = [f"{gate}=true" for gate in gates]
    values += ["SchedulerAsyncPreemption=false"] if minor >= 33 else []
    return [
        str(program),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        *([f"--feature-gates={','.join(values)}"] if values else []),
    ]


def kwok(program: Path, *, kubeconfig: Path, configs: list[Path], port: int) -> list[str]:
    """Return the command of KWOK for the nodes that select it by annotation."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        *(f"--config={path}" for path in configs),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-ip=127.0.0.1",
        # Pods have addresses of the loopback, so that one played model server answers for all.
        "--cidr=127.64.0.1/10",
        f"--server-address=127.0.0.1:{port}",
        "--v=WARN",
    ]
