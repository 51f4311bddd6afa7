"""Address of the API server and credentials for it: kubeconfig or service account, refreshed."""

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

# A service account's token is valid for an hour and rewritten at 80 % of that; exec plug-ins run
# again only when their credential has expired. A check every minute is early enough for both.
REFRESH_S = 60.0
# Errors of the kubeconfig reader on a file that is not a kubeconfig.
UNREADABLE = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
)
# The folder of a pod's token and of the cluster's certificate.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def lease_namespace(configured: str | None) -> str:
    """Return the configured namespace, or without one that of this process's pod.

    Outside a pod it is empty.
    """
    if configured is not None:
        return configured
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class Credentials:
    """The server's address, its certificates, and the Authorization header."""

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
        self._fresh_until_s = -1.0
        self._authorization: str | None = None
        self._failing = False

    async def authorization(self) -> str | None:
        """Return the Authorization header; None if a client certificate authenticates instead.

        Checks for a newer token every minute. If there is none, the old one stays in use, and the
        failure is logged once: only the server knows if it is still valid.
        """
        if self._clock() < self._fresh_until_s:
            return self._authorization
        # Set first: requests during a plug-in's run use the old token.
        self._fresh_until_s = self._clock() + REFRESH_S
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
        """Check for newer credentials at the next request: the server answered 401."""
        self._fresh_until_s = -1.0


async def load_credentials(
    kubeconfig: str | None,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    pool_size: int,
    service_account: Path,
) -> Credentials:
    """Load credentials: ``kubeconfig``, else the pod's service account, else $KUBECONFIG.

    Raises:
        ClusterConfigError: none of them exists, or the one that does cannot be read.
    """
    configuration = Configuration(connection_pool_maxsize=pool_size)
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return _from_service_account(configuration, service_account, environ=environ, clock=clock)
    paths = kubeconfig or environ.get("KUBECONFIG") or "~/.kube/config"
    if not _any_exists(paths):
        raise ClusterConfigError(
            f"no API server is configured: {paths} does not exist, and this is not a pod; give a "
            "kubeconfig"
        )
    try:
        # persist_config would rewrite the user's file.
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, client_configuration=configuration, persist_config=False
        )
        if configuration.proxy is None:
            configuration.proxy = _proxy_for(configuration.host)
    except (TypeError, AttributeError, KeyError):
        raise ClusterConfigError(
            f"cannot use kubeconfig {paths}: it has not the form of a kubeconfig; give another one"
        ) from None
    except UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise ClusterConfigError(f"cannot use kubeconfig {paths}: {reason}") from None

    async def renew() -> None:
        await loader.load_and_set(configuration)

    return Credentials(configuration, renew, clock=clock)


def _from_service_account(
    configuration: Configuration,
    folder: Path,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float],
) -> Credentials:
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        try_refresh_token=False,  # `Credentials` refreshes it
        environ=environ,
    )

    async def renew() -> None:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]

    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ClusterConfigError(
            f"this is a pod (KUBERNETES_SERVICE_HOST is set), but: {error} Mount its service "
            "account's token, or give a kubeconfig"
        ) from None
    return Credentials(configuration, renew, clock=clock)


def _any_exists(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _proxy_for(host: str) -> str | None:
    """Find the proxy that the environment sets for ``host``, by kubectl's rules.

    Done once here: the HTTP client would read the environment and ~/.netrc at every request, the
    latter in a thread.
    """
    parts = urlsplit(host)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
