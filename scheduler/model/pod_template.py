"""Templates of pods that the gateway creates: their check, and the pod of one."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from scheduler.model import names
from scheduler.model.message_text import quoted

_OURS = f"{names.GROUP}/"
_CONTAINERS = ("containers", "initContainers")
_GPU_PREFIXES = (_OURS, "nvidia.com/", "amd.com/", "gpu.intel.com/")

Json = dict[str, Any]


def template_problem(template: Mapping[str, Any]) -> str | None:
    """Return why no pods can be created from a PodTemplateSpec; None if they can."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not (isinstance(containers, list) and containers):
        return "has no spec.containers; write it like the template of a Deployment"
    assert isinstance(spec, Mapping)  # noqa: S101 - it has containers
    for part in _CONTAINERS:
        items = spec.get(part) or []
        if not isinstance(items, list):
            return f"spec.{part}: {quoted(str(items))} is not a list; write that of a Deployment"
        if not all(isinstance(container, Mapping) for container in items):
            return f"spec.{part}: an item is not an object; write it like that of a Deployment"
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        return f"metadata: {quoted(str(metadata))} is not an object; give labels and annotations"
    return _metadata_problem(metadata) or _spec_problem(spec, _gpu_container(template))


def _metadata_problem(metadata: Mapping[str, Any]) -> str | None:
    for part in ("labels", "annotations"):
        texts = metadata.get(part) or {}
        if not isinstance(texts, Mapping):
            return f"metadata.{part}: {quoted(str(texts))} is not an object; give keys and texts"
        for key, value in texts.items():
            if not isinstance(key, str):
                return f"metadata.{part}: the key {quoted(key)} is not a text; quote it"
            if key.startswith(_OURS) and key != names.ANNOTATION_CONTAINER:
                return f"metadata.{part}: the gateway sets {key} on each pod; remove it"
            if not isinstance(value, str):
                return f"metadata.{part}.{key}: {quoted(str(value))} is not a text; quote it"
    return None


def _spec_problem(spec: Mapping[str, Any], gpu_container: str | None) -> str | None:
    if spec.get("nodeName"):
        return "spec.nodeName: the scheduler chooses the node; remove it, or use nodeSelector"
    for path, container in _containers(spec):
        where, resources = f"spec.{path}.resources", container.get("resources") or {}
        if not isinstance(resources, Mapping):
            return f"{where}: {quoted(str(resources))} is not an object; give requests and limits"
        for part in ("requests", "limits"):
            where, quantities = f"spec.{path}.resources.{part}", resources.get(part) or {}
            if not isinstance(quantities, Mapping):
                return f"{where}: {quoted(str(quantities))} is not an object; give quantities"
            for resource in quantities:
                if str(resource).startswith(_GPU_PREFIXES):
                    return f"{where}: the gateway chooses the share of a GPU; remove {resource}"
                if resource == "cpu" and container.get("name") == gpu_container:
                    return f"{where}: the gateway chooses the vCPUs of this container; remove cpu"
    return None


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in _CONTAINERS:
        for index, container in enumerate(spec.get(part) or []):
            yield f"{part}[{index}]", container


def _gpu_container(template: Mapping[str, Any]) -> str | None:
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    first: str | None = template["spec"]["containers"][0].get("name")
    return annotations.get(names.ANNOTATION_CONTAINER, first)


def pod_of_template(  # noqa: PLR0913 - each by its name
    template: Mapping[str, Any],
    *,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    owner: Mapping[str, str] | None,
    scheduler_name: str,
) -> Json:
    """Return the Pod of a template.

    Args:
        template: a PodTemplateSpec without a `template_problem`.
        name: name of the pod.
        labels: labels that the gateway adds to the template's.
        annotations: annotations that the gateway adds to the template's.
        owner: apiVersion, kind, name and uid of the pod's owner, with which it is deleted, or None.
        scheduler_name: scheduler of the pod if the template names none; empty: none.
    """
    own = template.get("metadata") or {}
    spec = deepcopy(dict(template["spec"]))
    if scheduler_name:
        spec.setdefault("schedulerName", scheduler_name)
    # As its controller, so that `kubectl drain` evicts it.
    owners = {} if owner is None else {"ownerReferences": [{**owner, "controller": True}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**(own.get("labels") or {}), **labels},
            "annotations": {**(own.get("annotations") or {}), **annotations},
            **owners,
        },
        "spec": spec,
    }
