"""Bound pods that their kubelet rejected: none of their containers has run."""

from collections.abc import Mapping
from typing import Any

ADMISSION_ERROR = "UnexpectedAdmissionError"
OUT_OF = "OutOf"  # and the name of a resource


def rejection_of(raw: Mapping[str, Any]) -> str:
    """Return why the kubelet rejected a pod, with its message; empty if it did not.

    Two schedulers may give one node's vCPUs away twice. The kubelet starts the pod that it sees
    first, and fails the other one permanently.
    """
    status = raw.get("status") or {}
    reason = status.get("reason") or ""
    if status.get("phase") != "Failed" or not reason.startswith((OUT_OF, ADMISSION_ERROR)):
        return ""
    return ": ".join(part for part in (reason, status.get("message")) if part)
