"""Kubeconfigs and Kubernetes objects."""

import json
from pathlib import Path
from typing import Any

from scheduler.cluster.api import Raw


def kubeconfig_for(
    url: str,
    folder: Path,
    user: Raw | None = None,
    *,
    ca: Path | None = None,
    proxy: str | None = None,
) -> str:
    """Write a kubeconfig for ``url``, over ``proxy``; ``ca`` is a file of certificates."""
    cluster = {"server": url}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    if proxy is not None:
        cluster["proxy-url"] = proxy
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user or {"token": "sesame"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def pod(name: str, *, namespace: str = "default", uid: str = "", **spec: Any) -> Raw:
    """Create a pod of one container."""
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str) -> Raw:
    """Create a node without GPUs."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8"}}}
