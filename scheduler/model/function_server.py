"""``FunctionServer``: the model server of a function in a namespace, for the gateway."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from scheduler.model.document_fields import DocumentModel, Metadata, Name
from scheduler.model.names import API_VERSION, LABEL_GATEWAY_POOL, LABEL_POOL, POOL_MEMBER
from scheduler.model.pod_template import template_problem

ServerProtocol = Literal["http-binary", "http-json", "grpc"]
Batching = Literal["gateway", "none"]
Share = Literal["pooled", "reserved"]
PODS_MAX = 10_000
MIN_PODS, MAX_PODS = 0, 20
_OF_TEMPLATES = {
    **dict.fromkeys(
        ("min_pods", "max_pods", "keep_alive_s"), "scale selected pods by their own Deployment"
    ),
    "share": f"give selected pods of a pool the label {LABEL_POOL}: {POOL_MEMBER}",
}
# A label's key has a prefix of 253 characters, a slash and a name of 63.
_LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
_LabelValue = Annotated[
    str, StringConstraints(max_length=63), Field(description="value that the label must have")
]


class PodSelector(DocumentModel):
    """Labels of the pods that serve a function."""

    match_labels: dict[_LabelKey, _LabelValue] = Field(
        min_length=1, max_length=32, description="labels that a pod must have, all of them"
    )


class FunctionServerSpec(DocumentModel):
    """Pods that serve a function, and the protocol of their model server."""

    function: Name = Field(description="the name of its FunctionProfile")
    selector: PodSelector | None = Field(
        default=None, description="existing pods of the namespace; or give `template`"
    )
    template: dict[str, Any] | None = Field(
        default=None,
        description="a PodTemplateSpec for pods that the gateway creates and ends by demand; or "
        "give `selector`. It has no labels of esg-scheduler.io, no node and no GPU resources",
    )
    protocol: ServerProtocol = Field(
        description="http-binary: Open Inference Protocol over HTTP with binary tensors (Triton); "
        "http-json: with JSON tensors; grpc: over gRPC (MLServer, KServe's Python servers)"
    )
    port: int = Field(
        strict=True,
        ge=1,
        le=65535,
        description="port of the pods' model server; selected pods must declare it as a "
        "`containerPort`",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="the model's name at the server; unset: the name of the function",
    )
    batching: Batching = Field(
        default="gateway",
        description="gateway: the gateway joins requests by rows; none: it sends one at a time",
    )
    slots: int = Field(
        default=1,
        strict=True,
        ge=1,
        le=64,
        description="batches that one pod may have at the same time",
    )
    min_pods: int | None = Field(
        default=None,
        strict=True,
        ge=0,
        le=PODS_MAX,
        description="pods of a template that always run, once a Workflow has a stage of the "
        f"function; unset: {MIN_PODS}",
    )
    max_pods: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=PODS_MAX,
        description=f"pods of a template that may run; unset: {MAX_PODS}",
    )
    replicas: int = Field(
        default=0,
        strict=True,
        ge=0,
        le=PODS_MAX,
        description="pods of a template that run without demand, too, as `kubectl scale` or an "
        "autoscaler sets them; at least minPods and at most maxPods count",
    )
    keep_alive_s: float | None = Field(
        default=None,
        strict=True,
        ge=0,
        le=86_400,
        description="time that the last idle pod of a template is kept, s; unset: learned from "
        "the times between requests, and 600 before",
    )
    share: Share | None = Field(
        default=None,
        description="pooled: pods of the template share the slices of its pool, and "
        "hold percent of a GPU only while a batch runs; reserved: each pod holds its own all the "
        "time; unset: the gateway's ESG_GATEWAY_SHARE",
    )

    @field_validator("template")
    @classmethod
    def _is_usable(cls, template: dict[str, Any] | None) -> dict[str, Any] | None:
        if template is not None and (problem := template_problem(template)) is not None:
            raise ValueError(problem)
        return template

    @model_validator(mode="after")
    def _one_source_of_pods(self) -> Self:
        if (self.selector is None) == (self.template is None):
            number = "both are" if self.selector else "neither is"
            raise ValueError(
                f"selector, template: {number} given; give a selector for pods that exist, or a "
                "template for pods that the gateway creates"
            )
        if self.selector is not None:
            for name, remedy in _OF_TEMPLATES.items():
                if getattr(self, name) is not None:
                    alias = type(self).model_fields[name].alias
                    raise ValueError(
                        f"{alias}: applies to a template; {remedy}, and remove it here"
                    )
            if self.replicas:
                raise ValueError(
                    "replicas: applies to a template; scale selected pods by their own "
                    "Deployment, and remove it here"
                )
        if (self.min_pods or MIN_PODS) > self.pods_max:
            raise ValueError(
                f"minPods: {self.min_pods} is above maxPods, {self.pods_max}; lower it"
            )
        return self

    @property
    def pods_min(self) -> int:
        """Pods of a template that always run."""
        limit = MIN_PODS if self.min_pods is None else self.min_pods
        return min(max(limit, self.replicas), self.pods_max)

    @property
    def pods_max(self) -> int:
        """Pods of a template that may run."""
        return MAX_PODS if self.max_pods is None else self.max_pods

    @property
    def keep_alive_ms(self) -> float | None:
        """Time that the last idle pod of a template is kept; None: it is learned."""
        return None if self.keep_alive_s is None else 1000 * self.keep_alive_s


class FunctionServer(DocumentModel):
    """Model server of a function in a namespace: its pods, protocol and port (namespaced)."""

    api_version: Literal["esg-scheduler.io/v1alpha1"] = API_VERSION
    kind: Literal["FunctionServer"] = "FunctionServer"
    metadata: Metadata
    spec: FunctionServerSpec

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace or "default", self.metadata.name

    @property
    def function_key(self) -> tuple[str, str]:
        """(namespace, function); one server may have it."""
        return self.key[0], self.spec.function

    @property
    def created(self) -> str:
        """Time of its creation in a cluster, RFC 3339; empty elsewhere."""
        return str((self.metadata.model_extra or {}).get("creationTimestamp") or "")

    @property
    def model(self) -> str:
        """Name of the model at the server."""
        return self.spec.model or self.spec.function

    @property
    def pod_selector(self) -> str:
        """Label selector of its pods."""
        if self.spec.selector is None:
            return f"{LABEL_GATEWAY_POOL}={self.metadata.name}"
        return ",".join(f"{k}={v}" for k, v in sorted(self.spec.selector.match_labels.items()))

    @property
    def owner(self) -> dict[str, str]:
        """Reference of the pods of its template to it."""
        metadata = self.metadata
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": metadata.name,
            "uid": metadata.uid,
        }

    def selects(self, labels: Mapping[str, str], controller_uid: str | None = None) -> bool:
        """Return true if a pod of the namespace serves the function.

        Args:
            labels: labels of the pod.
            controller_uid: UID of the object that controls it. Others may have the label of the
                template's pods, too, and the gateway must not end theirs.
        """
        if self.spec.selector is not None:
            return self.spec.selector.match_labels.items() <= labels.items()
        of_pool = labels.get(LABEL_GATEWAY_POOL) == self.metadata.name
        return of_pool and controller_uid == self.metadata.uid
