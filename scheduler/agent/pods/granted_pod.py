"""A pod with a grant, as data that `esg mps` can read without a client of the API server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrantedPod:
    """A pod of this node with a share of a GPU."""

    uid: str
    namespace: str
    name: str
    gpu_uuid: str
    gpu_percent: int
    memory_mib: int  # the limit of each process
    workflow: str = ""  # of a function alone: none
    stage: str = ""  # or the function
    resource_claim: str = ""  # that gives it the GPU's folders; none: a volume does
    is_member: bool = False  # of a pool: the percent is that of a batch in a slice
