"""Where the API server is, and who we are to it: kubeconfig or service account, kept fresh."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from scheduler.cluster.errors import ClusterConfigError

log = structlog.get_logger(__name__)

# A service account's token lives an hour and is rewritten at 80 % of that; exec plug-ins are asked
# again only when what they gave has expired. A look a minute is early enough for both.
REFRESH_S = 60.0
# What a kubeconfig that is none makes its reader raise.
UNREADABLE = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
)
# Where a pod finds its token and the cluster's certificate.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials:
    """The server's address, its certificates, and the header that says who asks."""

    def __init__(
        self,
        configuration: Configuration,
        renew: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float],
    ) -> None:
        self.configuration = configuration
        self._renew = renew
        self._clock = clock
        self._fresh_until = -1.0
        self._authorization: str | None = None
        self._failing = False

    async def authorization(self) -> str | None:
        """The value of the Authorization header; None where a client certificate speaks instead.

        Looks for a newer token once a minute. If none can be had the old one is used on, and the
        trouble is logged once: the server is the judge of whether it still counts.
        """
        if self._clock() < self._fresh_until:
            return self._authorization
        # Set first: requests that come while a plug-in runs go out with what there is.
        self._fresh_until = self._clock() + REFRESH_S
        try:
            await self._renew()
            header = await self.configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError, ValueError) as error:
            if not self._failing:
                log.warning("credentials.stale", reason=str(error))
            self._failing = True
            return self._authorization
        self._failing = False
        self._authorization = header.strip() if header else None
        return self._authorization

    def expire(self) -> None:
        """Look for newer credentials at the next request: the server said 401."""
        self._fresh_until = -1.0


async def load_credentials(
    kubeconfig: str | None,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    pool_size: int,
    service_account: Path,
) -> Credentials:
    """Credentials from ``kubeconfig``, else of the pod's service account, else from $KUBECONFIG.

    Raises:
        ClusterConfigError: none of them is there, or what is there cannot be read.
    """
    configuration = Configuration(connection_pool_maxsize=pool_size)
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return _of_service_account(configuration, service_account, environ=environ, clock=clock)
    paths = kubeconfig or environ.get("KUBECONFIG") or "~/.kube/config"
    if not _any_is_there(paths):
        raise ClusterConfigError(
            f"no API server is configured: {paths} does not exist and this is no pod; give a "
            "kubeconfig, or run with an embedded cluster"
        )
    try:
        # persist_config would rewrite the user's file.
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, client_configuration=configuration, persist_config=False
        )
        if configuration.proxy is None:
            configuration.proxy = _proxy_for(configuration.host)
    except UNREADABLE as error:
        raise ClusterConfigError(f"kubeconfig {paths} cannot be used: {error}") from None

    async def renew() -> None:
        await loader.load_and_set(configuration)

    return Credentials(configuration, renew, clock=clock)


def _of_service_account(
    configuration: Configuration,
    folder: Path,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
) -> Credentials:
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        try_refresh_token=False,  # `Credentials` does it
        environ=environ,
    )

    async def renew() -> None:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]

    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ClusterConfigError(
            f"this is a pod (KUBERNETES_SERVICE_HOST is set), but: {error} Mount the service "
            "account's token, or give a kubeconfig"
        ) from None
    return Credentials(configuration, renew, clock=clock)


def _any_is_there(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _proxy_for(host: str) -> str | None:
    """The proxy that the environment names for ``host``, as kubectl would use it.

    Found once here: the HTTP client, if left to do it, reads the environment and ~/.netrc at every
    request, the latter in a thread.
    """
    parts = urlsplit(host)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
