"""Watched resources, and the fields of each object that are trimmed.

A pod of a real cluster is 5 to 20 KiB of JSON: managed fields, volumes, probes and environment that
nothing here reads. Each object is trimmed right after parsing; the rest is still raw JSON in
Kubernetes' form. Of labels and annotations, only esg-scheduler's remain, but all labels of pods.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import Any

from scheduler.cluster.api import Raw
from scheduler.model.names import API_VERSION, GROUP, LABEL_CLAIM, RESOURCE_CLAIM, VERSION
from scheduler.model.pod import DAEMON_OWNERS, SERVER_OWNERS, has_ended

# The fields that the model, the ledger and the SLO tracker read.
_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_POD_SPEC = ("nodeName", "overhead", "priority", "resources", "terminationGracePeriodSeconds")
_POD_STATUS = ("phase", "reason", "message", "nominatedNodeName")
_RUNNING: tuple[Raw, ...] = ({"state": {"running": {}}},)  # of a pod with containers that run
_CONTAINER = ("name", "resources", "restartPolicy")
_SERVER_CONTAINER = ("ports", "resources", "restartPolicy")
_SERVER_CONDITIONS = {
    "Ready": ("type", "status"),
    "PodScheduled": ("type", "status", "reason", "message"),
    "DisruptionTarget": ("type", "reason"),
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of API object.

    Attributes:
        plural: name of the resource in paths and in RBAC rules.
        root: path of the API group.
        group: API group, "" for the core.
        trim: function that reduces an object to the fields that are read.
        namespace: namespace of the objects; empty: all.
        labels: selector of objects by their labels; empty: all.
    """

    plural: str
    kind: str
    root: str
    group: str
    trim: Callable[[Raw], Raw]
    namespace: str = ""
    labels: str = ""

    @property
    def path(self) -> str:
        """The path that lists all objects, of all namespaces or of one."""
        namespaced = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{self.root}{namespaced}/{self.plural}"

    def within(self, namespace: str) -> "Resource":
        """Return the resource of one namespace; empty: of all."""
        return replace(self, namespace=namespace)

    def labelled(self, selector: str) -> "Resource":
        """Return the resource with a label selector."""
        return replace(self, labels=selector)

    @property
    def full_name(self) -> str:
        """``plural.group``, like in kubectl and RBAC."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def trim_pod(raw: Raw) -> Raw:
    """Keep a Pod's identity, requests, claim, node and phase, and owners of daemons and servers.

    Disruption budgets select pods by any label; thousands of pods share their texts.
    """
    spec = raw.get("spec") or {}
    trimmed_spec = _only(spec, _POD_SPEC)
    for part in ("containers", "initContainers"):
        if part in spec:
            trimmed_spec[part] = [_only(container, _CONTAINER) for container in spec[part] or ()]
    claims = [c for c in spec.get("resourceClaims") or () if c.get("name") == RESOURCE_CLAIM]
    if claims:
        trimmed_spec["resourceClaims"] = claims
    metadata = _metadata(raw)
    if labels := (raw.get("metadata") or {}).get("labels"):
        metadata["labels"] = {intern(key): intern(value) for key, value in labels.items()}
    owners = [
        {"kind": owner["kind"]}
        for owner in (raw.get("metadata") or {}).get("ownerReferences") or ()
        if owner.get("kind") in DAEMON_OWNERS | SERVER_OWNERS
    ]
    if owners:
        metadata["ownerReferences"] = owners
    status = _only(raw.get("status") or {}, _POD_STATUS)
    if has_ended({"status": status}) and not has_ended(raw):
        status["containerStatuses"] = _RUNNING
    return {"metadata": metadata, "spec": trimmed_spec, "status": status}


def trim_server_pod(raw: Raw) -> Raw:
    """Keep what the gateway reads of a pod: labels, owner, grant, vCPUs, ports, state, grace."""
    metadata, spec, status = _metadata(raw), raw.get("spec") or {}, raw.get("status") or {}
    if labels := (raw.get("metadata") or {}).get("labels"):
        metadata["labels"] = labels
    for owner in (raw.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            metadata["ownerReferences"] = [_only(owner, ("kind", "uid", "controller"))]
    trimmed_spec = _only(
        spec, ("nodeName", "overhead", "resources", "terminationGracePeriodSeconds")
    )
    for part in ("containers", "initContainers"):
        if part in spec:
            trimmed_spec[part] = [_only(c, _SERVER_CONTAINER) for c in spec[part] or ()]
    trimmed_status = _only(status, ("phase", "podIP", "reason", "message"))
    trimmed_status["conditions"] = [
        _only(condition, _SERVER_CONDITIONS[condition["type"]])
        for condition in status.get("conditions") or ()
        if condition.get("type") in _SERVER_CONDITIONS
    ]
    waiting = [
        {"state": {"waiting": _only(reason, ("reason", "message"))}}
        for container in status.get("containerStatuses") or ()
        if (reason := (container.get("state") or {}).get("waiting")) is not None
    ]
    if waiting:
        trimmed_status["containerStatuses"] = waiting
    return {"metadata": metadata, "spec": trimmed_spec, "status": trimmed_status}


def trim_node(raw: Raw) -> Raw:
    """Keep a Node's identity and its resources."""
    status = _only(raw.get("status") or {}, ("allocatable", "capacity"))
    return {"metadata": _metadata(raw), "status": status}


def trim_agent_node(raw: Raw) -> Raw:
    """Keep also a Node's taints, which its agent changes."""
    return {**trim_node(raw), "spec": _only(raw.get("spec") or {}, ("taints",))}


def trim_disruption_budget(raw: Raw) -> Raw:
    """Keep a PodDisruptionBudget's selector, and what it allows now."""
    return {
        "metadata": _metadata(raw),
        "spec": _only(raw.get("spec") or {}, ("selector",)),
        "status": _only(raw.get("status") or {}, ("disruptionsAllowed", "disruptedPods")),
    }


def trim_lease(raw: Raw) -> Raw:
    """Keep a Lease's holder and duration."""
    spec = _only(raw.get("spec") or {}, ("holderIdentity", "leaseDurationSeconds"))
    return {"metadata": _metadata(raw), "spec": spec}


def trim_claim(raw: Raw) -> Raw:
    """Keep a ResourceClaim's identity."""
    return {"metadata": _metadata(raw)}


def _trim_document(kind: str) -> Callable[[Raw], Raw]:
    def trim(raw: Raw) -> Raw:
        trimmed = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": _metadata(raw),
            "spec": raw.get("spec"),
        }
        return trimmed | _only(raw, ("status",))

    return trim


def _trim_server(raw: Raw) -> Raw:
    """Trim as any document, but keep the age: of two servers of a function the older counts."""
    trimmed = _trim_document("FunctionServer")(raw)
    trimmed["metadata"] |= _only(raw.get("metadata") or {}, ("creationTimestamp",))
    return trimmed


def _metadata(raw: Raw) -> Raw:
    metadata = raw.get("metadata") or {}
    trimmed = _only(metadata, _METADATA)
    for part in ("labels", "annotations"):
        every = metadata.get(part) or {}
        own = {key: every[key] for key in every if key.startswith(GROUP)}
        if own:
            trimmed[part] = own
    return trimmed


def _only(whole: Mapping[str, Any], keys: tuple[str, ...]) -> Raw:
    return {key: whole[key] for key in keys if key in whole}


NODES = Resource("nodes", "Node", "/api/v1", "", trim_node)
AGENT_NODES = replace(NODES, trim=trim_agent_node)
PODS = Resource("pods", "Pod", "/api/v1", "", trim_pod)
SERVER_PODS = Resource("pods", "Pod", "/api/v1", "", trim_server_pod)
_DOCUMENTS = f"/apis/{GROUP}/{VERSION}"
WORKFLOWS = Resource("workflows", "Workflow", _DOCUMENTS, GROUP, _trim_document("Workflow"))
FUNCTION_PROFILES = Resource(
    "functionprofiles", "FunctionProfile", _DOCUMENTS, GROUP, _trim_document("FunctionProfile")
)
FUNCTION_SERVERS = Resource("functionservers", "FunctionServer", _DOCUMENTS, GROUP, _trim_server)
LEASES = Resource(
    "leases", "Lease", "/apis/coordination.k8s.io/v1", "coordination.k8s.io", trim_lease
)
CLAIMS = Resource(
    "resourceclaims",
    "ResourceClaim",
    "/apis/resource.k8s.io/v1",
    "resource.k8s.io",
    trim_claim,
    labels=LABEL_CLAIM,
)
NO_CLAIMS = (
    "the API server has no resource.k8s.io/v1: claims need Kubernetes 1.34; upgrade it, or set "
    "ESG_RESOURCE_CLAIMS=false (dra.enabled: false)"
)
"""Why `CLAIMS` cannot be listed or written, and the remedy."""
DISRUPTION_BUDGETS = Resource(
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    "/apis/policy/v1",
    "policy",
    trim_disruption_budget,
)
