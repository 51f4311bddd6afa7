"""Finding the API server, saying who asks, and keeping the HTTP client's exceptions in."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.api import Api, connect
from scheduler.cluster.credentials import REFRESH_S, load_credentials
from scheduler.cluster.errors import (
    ApiError,
    ApiTimeoutError,
    ApiUnreachableError,
    ClusterConfigError,
    ClusterError,
)
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer, cut, hang, refuse
from tests.cluster.props import VirtualTime, kubeconfig_for, pod


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    (tmp_path / "ca.crt").write_text("a certificate", encoding="utf-8")
    return tmp_path


@pytest.fixture
async def slow(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=0.4) as made:
        yield made


async def test_kubeconfig(server: ApiServer, api: Api) -> None:
    """The kubeconfig's server is asked, with its token, and no compression is asked for."""
    await api.get(PODS.path)

    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer sesame"
    assert headers["User-Agent"] == "esg-scheduler"
    assert headers["Accept-Encoding"] == "identity"


async def test_kubeconfig_of_the_environment(server: ApiServer, tmp_path: Path) -> None:
    """Without an argument, and outside a pod, $KUBECONFIG leads to the server."""
    path = kubeconfig_for(server.url, tmp_path)
    environ = {"KUBECONFIG": os.pathsep.join(["/nowhere/config", path])}

    async with connect(environ=environ) as api:
        await api.get(PODS.path)

    assert len(server.requests) == 1


async def test_no_kubeconfig(tmp_path: Path) -> None:
    """A kubeconfig that is not there is told, with what to do."""
    with pytest.raises(ClusterConfigError, match=r"no API server is configured: .*nowhere"):
        async with connect(str(tmp_path / "nowhere")):
            pass


@pytest.mark.parametrize("text", ["", "[]", "clusters: 3", "current-context: x", "{", "a: \x00"])
async def test_broken_kubeconfig(tmp_path: Path, text: str) -> None:
    """A kubeconfig that is none is told, and named."""
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ClusterConfigError, match=r"kubeconfig .*config cannot be used"):
        async with connect(str(path)):
            pass


async def test_broken_certificate(tmp_path: Path) -> None:
    """A certificate that is none is told when connecting, not at the first request."""
    (tmp_path / "ca.crt").write_text("none", encoding="ascii")
    path = kubeconfig_for("https://api.test", tmp_path, ca=tmp_path / "ca.crt")

    with pytest.raises(ClusterConfigError, match=r"certificates for https://api\.test"):
        async with connect(path):
            pass


async def test_service_account(service_account: Path, time: VirtualTime) -> None:
    """In a pod the service account's token is used, and read again when a minute has passed."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = await load_credentials(
        None, environ=environ, clock=time.clock, pool_size=4, service_account=service_account
    )
    first = await credentials.authorization()
    (service_account / "token").write_text("second", encoding="utf-8")
    cached = await credentials.authorization()
    time.now += REFRESH_S
    second = await credentials.authorization()

    assert credentials.configuration.host == "https://10.0.0.1:443"
    assert (first, cached, second) == ("bearer first", "bearer first", "bearer second")


async def test_token_unreadable_for_a_while(
    service_account: Path, time: VirtualTime, logged: list[dict[str, Any]]
) -> None:
    """If the token cannot be read again the old one is used on; that is logged once."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = await load_credentials(
        None, environ=environ, clock=time.clock, pool_size=4, service_account=service_account
    )
    await credentials.authorization()
    (service_account / "token").unlink()
    for _ in range(3):
        time.now += REFRESH_S
        held = await credentials.authorization()

    assert held == "bearer first"
    assert [entry["event"] for entry in logged] == ["credentials.stale"]


async def test_no_token(tmp_path: Path, time: VirtualTime) -> None:
    """A pod without a token is told what to do."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    with pytest.raises(ClusterConfigError, match="Mount the service account's token"):
        await load_credentials(
            None, environ=environ, clock=time.clock, pool_size=4, service_account=tmp_path
        )


async def test_token_file(server: ApiServer, tmp_path: Path, time: VirtualTime) -> None:
    """A kubeconfig's tokenFile is read again when the server says 401."""
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")
    path = kubeconfig_for(server.url, tmp_path, {"tokenFile": str(token)})
    async with connect(path, clock=time.clock) as api:
        await api.get(PODS.path)
        token.write_text("second", encoding="utf-8")
        server.fault("GET", PODS.path, refuse(401, "Unauthorized", "expired"))
        with pytest.raises(ApiError, match="401 Unauthorized: expired"):
            await api.get(PODS.path)
        await api.get(PODS.path)

    sent = [seen.headers["Authorization"] for seen in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


async def test_proxy_of_the_environment(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's proxy is used for servers that it is not told to spare."""
    monkeypatch.setenv("http_proxy", server.url)
    async with connect(kubeconfig_for("http://api.invalid", tmp_path)) as api:
        await api.get(PODS.path)

    assert server.requests[0].headers["Host"] == "api.invalid"


async def test_proxy_of_the_kubeconfig(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubeconfig's own proxy comes before the environment's."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    path = kubeconfig_for("http://api.invalid", tmp_path, proxy=server.url)
    async with connect(path) as api:
        await api.get(PODS.path)

    assert server.requests[0].headers["Host"] == "api.invalid"


async def test_a_refusal_without_json(server: ApiServer, api: Api) -> None:
    """A proxy's page, where a Status is expected, is quoted."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(status=502, text="<h1>Bad gateway</h1>", content_type="text/html")

    server.fault("GET", PODS.path, page)

    with pytest.raises(ApiError, match="502 Bad Gateway: <h1>Bad gateway</h1>"):
        await api.get(PODS.path)


async def test_an_answer_without_json(server: ApiServer, api: Api) -> None:
    """A success that is no JSON is no success."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="welcome")

    server.fault("GET", PODS.path, page)

    with pytest.raises(ApiError, match="did not answer with JSON"):
        await api.get(PODS.path)


async def test_never_sent(server: ApiServer, slow: Api) -> None:
    """Nobody listens: the request certainly never left."""
    await server.stop()

    with pytest.raises(ApiUnreachableError) as caught:
        await slow.get(PODS.path)

    assert not caught.value.sent


async def test_never_sent_for_want_of_a_connection(server: ApiServer, tmp_path: Path) -> None:
    """A request that waited in vain for one of the pool's connections never left either."""
    path = kubeconfig_for(server.url, tmp_path)
    server.fault("GET", PODS.path, hang)
    async with connect(path, pool_size=1, timeout_s=5, connect_timeout_s=0.3) as api:
        first = asyncio.create_task(api.get(PODS.path))
        await server.until(lambda: bool(server.requests))
        with pytest.raises(ApiTimeoutError) as caught:
            await api.get(PODS.path)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    assert not caught.value.sent
    assert len(server.requests) == 1


@pytest.mark.parametrize(("fault", "kind"), [(hang, ApiTimeoutError), (cut, ApiUnreachableError)])
async def test_perhaps_sent(server: ApiServer, slow: Api, fault: Any, kind: type) -> None:
    """Once the request has left, a time-out or a broken connection says that it may be done."""
    server.fault("POST", "events", fault)

    with pytest.raises(kind) as caught:
        await slow.post("/api/v1/namespaces/default/events", {})

    assert caught.value.sent


async def test_broken_in_the_middle(server: ApiServer, api: Api) -> None:
    """An answer that breaks off is an ApiUnreachableError, in a stream too."""

    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return answer

    server.fault("GET", PODS.path, half, times=2)

    with pytest.raises(ApiUnreachableError):
        await api.get(PODS.path)
    with pytest.raises(ApiUnreachableError):
        async with api.stream(PODS.path, query={}, silence_s=1) as lines:
            assert [line async for line in lines] == []


async def test_nothing_leaks(server: ApiServer, tmp_path: Path) -> None:
    """Whatever a server's address turns out to be, the exception is ours."""
    for url in ("http://127.0.0.1:1", "http://a b", "http://[::1", "https://127.0.0.1:1"):
        with pytest.raises(ClusterError):
            async with connect(kubeconfig_for(url, tmp_path), timeout_s=1) as api:
                await api.get(PODS.path)
    assert server.requests == []


async def test_tls_that_is_none(server: ApiServer, tmp_path: Path) -> None:
    """HTTPS to a port that speaks none cannot be connected, so nothing was sent."""
    path = kubeconfig_for(server.url.replace("http:", "https:"), tmp_path)

    async with connect(path) as api:
        with pytest.raises(ApiUnreachableError) as caught:
            await api.get(PODS.path)

    assert not caught.value.sent


async def test_patch(server: ApiServer, api: Api) -> None:
    """A PATCH is a merge patch."""
    server.events["e"] = {"metadata": {"name": "e"}, "count": 1}

    answer = await api.patch("/api/v1/namespaces/default/events/e", {"count": 2})

    assert answer["count"] == 2
    assert server.requests[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_names_are_not_part_of_the_path(server: ApiServer, api: Api) -> None:
    """A query's values are quoted."""
    server.put(PODS, pod("a"))

    await api.get(PODS.path, query={"labelSelector": "a in (b, c)&limit=1"})

    assert server.requests[0].query == {"labelSelector": "a in (b, c)&limit=1"}
