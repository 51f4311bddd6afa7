"""Labels, annotations and resource names of pods, nodes and documents: the public contract."""

from typing import Final

GROUP = "esg-scheduler.io"
VERSION = "v1alpha1"
API_VERSION: Final = "esg-scheduler.io/v1alpha1"

# Written by the creator of a pod.
LABEL_WORKFLOW = f"{GROUP}/workflow"
LABEL_STAGE = f"{GROUP}/stage"
LABEL_FUNCTION = f"{GROUP}/function"
LABEL_REQUEST = f"{GROUP}/request"
ANNOTATION_ARRIVAL = f"{GROUP}/arrival"
ANNOTATION_DEADLINE = f"{GROUP}/deadline"
ANNOTATION_QUEUED = f"{GROUP}/queued"
ANNOTATION_RATE = f"{GROUP}/rate"
ANNOTATION_CONFIGURATION = f"{GROUP}/configuration"
ANNOTATION_CONTAINER = f"{GROUP}/container"

# Written by the creator of a pod of the pool (ADR 44) of its namespace and group (ADR 59). A holder
# requests a slice of one GPU, of a model if the annotation names one; a member runs in the slice of
# a holder.
LABEL_POOL = f"{GROUP}/pool"
POOL_HOLDER = "holder"
POOL_MEMBER = "member"
ANNOTATION_GPU_MODEL = f"{GROUP}/gpu-model"

# Written by the creator of a pod whose function is measured (ADR 50): it needs no profile, and gets
# the configuration and the GPU memory of its annotations, on a GPU of the model if one is named.
LABEL_MEASUREMENT = f"{GROUP}/measurement"
MEASURED = "true"
ANNOTATION_MEMORY = f"{GROUP}/memory-mib"

# Written by the gateway on its Leases: no batch of a former holder is on the pods of its shard.
ANNOTATION_DRAINED = f"{GROUP}/drained"

# Written by the extender on unbound pods: Bindings of an earlier version of the pod are void.
CONDITION_VOIDED = f"{GROUP}/BindingsVoided"

# Written by the gateway on the pods that it creates: the name of their FunctionServer.
LABEL_GATEWAY_POOL = f"{GROUP}/gateway-pool"

# Written on Workflows, FunctionServers and pods: the group of gateways that serves them (ADR 58). A
# gateway creates the pods of a template with the label of their FunctionServer.
LABEL_GATEWAY_GROUP = f"{GROUP}/gateway-group"

# Written by the Binding: present if and only if the pod is bound.
ANNOTATION_GPU = f"{GROUP}/gpu"
ANNOTATION_GPU_PERCENT = f"{GROUP}/gpu-percent"
ANNOTATION_GPU_MEMORY = f"{GROUP}/gpu-memory"
ANNOTATION_BATCH = f"{GROUP}/batch"
ANNOTATION_PLAN = f"{GROUP}/plan"

# Written by the Binding where NVIDIA's container toolkit gives devices by NRI: followed by a
# container's name. Its value are CDI devices.
ANNOTATION_CDI_PREFIX = "nvidia.cdi.k8s.io/"

# A resource claim that gives a pod its GPU's folders: the pod's name for it, its driver (the node
# agent), and its allocation. The container's CDI device has the claim's UID as its name.
RESOURCE_CLAIM = "esg-scheduler-grant"
CLAIM_DRIVER: Final = GROUP
CLAIM_POOL = "grants"
CLAIM_DEVICE = "grant"
LABEL_CLAIM: Final = f"{GROUP}/grant"
CDI_GRANT = f"{GROUP}/grant"
CDI_KIND_PATTERN = (
    r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$"  # or none
)

# The init container that checks the limits of a share; it sees the same GPU.
CONTAINER_MPS_CHECK = "esg-scheduler-mps-check"

# Written on a node by its agent: the inventory as JSON, and the extended resource: 100 per healthy
# GPU, plus the requests of pods that run on unhealthy ones.
ANNOTATION_GPUS = f"{GROUP}/gpus"
RESOURCE_GPU_PERCENT = f"{GROUP}/gpu-percent"

# For autoscalers, which know nodes by sums of resources (ADR 53). The first is on a node while all
# of its healthy GPUs have pods. The second is on a new node by its group's template, under a prefix
# that Cluster Autoscaler knows, until its agent offers GPUs.
TAINT_NO_EMPTY_GPU = f"{GROUP}/no-empty-gpu"
TAINT_STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/esg-scheduler"
TAINT_EFFECT_SOFT = "PreferNoSchedule"

# Annotations of function pods by which Karpenter and Cluster Autoscaler drain no node of theirs.
ANNOTATIONS_NO_DRAIN = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}

# Whole GPUs and MIG slices of NVIDIA's device plugin, also renamed ones (`nvidia.com/gpu.shared`).
RESOURCES_WHOLE_GPU = ("nvidia.com/gpu", "nvidia.com/mig-")
