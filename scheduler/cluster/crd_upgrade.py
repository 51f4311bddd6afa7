"""Create or update the CustomResourceDefinitions: Helm creates them and never changes them."""

from scheduler.cluster.api import Api
from scheduler.cluster.crds import crd_manifests
from scheduler.cluster.errors import ApiError

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_FOUND = 404


async def write_crds(api: Api) -> list[str]:
    """Give every definition the spec of this version; return their names.

    Labels, annotations and the conversion of others stay as they are.

    Raises:
        ClusterError: reading or writing one of them failed.
    """
    names = []
    for manifest in crd_manifests():
        name = manifest["metadata"]["name"]
        path = f"{_CRDS}/{name}"
        try:
            await api.get(path)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            await api.post(_CRDS, manifest)
        else:
            await api.patch(path, {"spec": manifest["spec"]})
        names.append(name)
    return names
