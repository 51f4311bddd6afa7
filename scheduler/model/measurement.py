"""Pods whose function is measured: they state their share, and need no profile (ADR 50)."""

from collections.abc import Mapping
from typing import Any

from scheduler.model import names
from scheduler.model.message_text import quoted
from scheduler.model.pod_fields import PodError, integer_of

MEMORY_MAX_MIB = 1_048_576  # as the profiles allow


def is_measured(raw: Mapping[str, Any]) -> bool:
    """Return true if the pod has the label of a measurement, valid or not."""
    return names.LABEL_MEASUREMENT in ((raw.get("metadata") or {}).get("labels") or {})


def measured_memory_mib(raw: Mapping[str, Any]) -> int:
    """Return the GPU memory that a measured pod states, in MiB; 0: it is none.

    Raises:
        PodError: the pod is measured, and lacks what a profile would say.
    """
    if not is_measured(raw):
        return 0
    metadata = raw["metadata"]
    labels, annotations = metadata["labels"], metadata.get("annotations") or {}
    where = f"label {names.LABEL_MEASUREMENT}"
    if (value := labels[names.LABEL_MEASUREMENT]) != names.MEASURED:
        raise PodError(f"{where}: {quoted(value)} must be {names.MEASURED}; or remove it")
    for label in (names.LABEL_WORKFLOW, names.LABEL_POOL):
        if label in labels:
            raise PodError(f"{where}: such a pod is of a function alone; remove the label {label}")
    for annotation, example in (
        (names.ANNOTATION_CONFIGURATION, '{"batch": 8, "cpu": 2, "gpuPercent": 28}'),
        (names.ANNOTATION_MEMORY, '"4096"'),
    ):
        if annotation not in annotations:
            raise PodError(
                f"{where}: such a pod needs no profile and states its share; set the annotation "
                f"{annotation}: {example}"
            )
    return integer_of(annotations, names.ANNOTATION_MEMORY, 1, MEMORY_MAX_MIB)
