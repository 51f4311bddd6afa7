"""Messages and names of the kubelet's plugin interfaces: registration v1 and DRA v1.

Sources: k8s.io/kubelet, pkg/apis/pluginregistration/v1/api.proto and pkg/apis/dra/v1/api.proto.
"""

from pathlib import Path
from typing import Final

from scheduler.model.names import CLAIM_DRIVER
from scheduler.protobuf import BOOL, TEXT, Field

REGISTRATION: Final = "pluginregistration.Registration"
PLUGIN: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
PLUGIN_TYPE: Final = "DRAPlugin"
PLUGIN_VERSION: Final = "v1.DRAPlugin"

INFO: Final = {
    1: Field("type", TEXT),
    2: Field("name", TEXT),
    3: Field("endpoint", TEXT),
    4: Field("supported_versions", TEXT, is_repeated=True),
}
STATUS: Final = {1: Field("plugin_registered", BOOL), 2: Field("error", TEXT)}

_CLAIM: Final = {1: Field("namespace", TEXT), 2: Field("uid", TEXT), 3: Field("name", TEXT)}
CLAIMS: Final = {1: Field("claims", _CLAIM, is_repeated=True)}
"""The request of both calls."""

_DEVICE: Final = {
    1: Field("request_names", TEXT, is_repeated=True),
    2: Field("pool_name", TEXT),
    3: Field("device_name", TEXT),
    4: Field("cdi_device_ids", TEXT, is_repeated=True),
}
_PREPARED: Final = {1: Field("devices", _DEVICE, is_repeated=True), 2: Field("error", TEXT)}
PREPARED: Final = {
    # A map is a list of its entries.
    1: Field("claims", {1: Field("uid", TEXT), 2: Field("result", _PREPARED)}, is_repeated=True)
}
_UNPREPARED: Final = {1: Field("error", TEXT)}
UNPREPARED: Final = {
    1: Field("claims", {1: Field("uid", TEXT), 2: Field("result", _UNPREPARED)}, is_repeated=True)
}


def plugin_sockets(kubelet_root: str) -> tuple[Path, Path]:
    """Return the socket on which the plugin answers, and the one by which the kubelet finds it."""
    root = Path(kubelet_root)
    return (
        root / "plugins" / CLAIM_DRIVER / "dra.sock",
        root / "plugins_registry" / f"{CLAIM_DRIVER}-reg.sock",
    )
