"""Connections: the server's address, credentials, and translated exceptions."""

import asyncio
import os

import pytest
from aiohttp import web

from scheduler.cluster.api import connect
from scheduler.cluster.credentials import REFRESH_S, load_credentials
from scheduler.cluster.errors import (
    ApiError,
    ApiTimeoutError,
    ApiUnreachableError,
    ClusterConfigError,
    ClusterError,
)
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import cut, hang, refuse
from tests.cluster.factories import kubeconfig_for, pod
from workbench.cluster.api_requests import EVENTS


@pytest.fixture
def service_account(tmp_path):
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    (tmp_path / "ca.crt").write_text("a certificate", encoding="utf-8")
    return tmp_path


@pytest.fixture
async def slow(server, tmp_path):
    async with connect(kubeconfig_for(server.url, tmp_path), timeout_s=1.0) as connected:
        yield connected


async def test_kubeconfig(server, api):
    """Requests go to the kubeconfig's server, with its token, and ask for no compression."""
    await api.get(PODS.path)

    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer sesame"
    assert headers["User-Agent"] == "esg-scheduler"
    assert headers["Accept-Encoding"] == "identity"


async def test_kubeconfig_of_the_environment(server, tmp_path):
    """Without an argument, and outside a pod, $KUBECONFIG names the server."""
    path = kubeconfig_for(server.url, tmp_path)
    environ = {"KUBECONFIG": os.pathsep.join(["/nowhere/config", path])}

    async with connect(environ=environ) as api:
        await api.get(PODS.path)

    assert len(server.requests) == 1


async def test_no_kubeconfig(tmp_path):
    """The error for a missing kubeconfig says what to do."""
    with pytest.raises(ClusterConfigError, match=r"no API server is configured: .*nowhere"):
        async with connect(str(tmp_path / "nowhere")):
            pass


@pytest.mark.parametrize(
    "text", ["", "[]", "text", "clusters: 3", "current-context: x", "{", "a: \x00"]
)
async def test_broken_kubeconfig(tmp_path, text):
    """The error for an invalid kubeconfig is one line, names the file, and is no interpreter's."""
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ClusterConfigError, match=r"cannot use kubeconfig .*config: ") as raised:
        async with connect(str(path)):
            pass
    assert "\n" not in str(raised.value)
    assert "' object" not in str(raised.value)


async def test_broken_certificate(tmp_path):
    """An invalid certificate is an error at the start, not at the first request."""
    (tmp_path / "ca.crt").write_text("none", encoding="ascii")
    path = kubeconfig_for("https://api.test", tmp_path, ca=tmp_path / "ca.crt")

    with pytest.raises(ClusterConfigError, match=r"certificates for https://api\.test"):
        async with connect(path):
            pass


async def test_service_account(service_account, time):
    """A pod uses its service account's token, and reads it again after a minute."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = await load_credentials(
        None, environ=environ, clock=time.clock_s, pool_size=4, service_account=service_account
    )
    first = await credentials.authorization()
    (service_account / "token").write_text("second", encoding="utf-8")
    cached = await credentials.authorization()
    time.now_s += REFRESH_S
    second = await credentials.authorization()

    assert credentials.configuration.host == "https://10.0.0.1:443"
    assert (first, cached, second) == ("bearer first", "bearer first", "bearer second")


async def test_token_is_unreadable_for_a_while(service_account, time, logged):
    """If the token cannot be read again, the old one stays in use, with one log entry."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = await load_credentials(
        None, environ=environ, clock=time.clock_s, pool_size=4, service_account=service_account
    )
    await credentials.authorization()
    (service_account / "token").unlink()
    for _ in range(3):
        time.now_s += REFRESH_S
        authorization = await credentials.authorization()

    assert authorization == "bearer first"
    assert [entry["event"] for entry in logged] == ["credentials.stale"]


async def test_no_token(tmp_path, time):
    """The error for a pod without a token says what to do."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    with pytest.raises(ClusterConfigError, match="Mount its service account's token"):
        await load_credentials(
            None, environ=environ, clock=time.clock_s, pool_size=4, service_account=tmp_path
        )


async def test_token_file(server, tmp_path, time):
    """A kubeconfig's tokenFile is read again after a 401."""
    token = tmp_path / "token"
    token.write_text("first", encoding="utf-8")
    path = kubeconfig_for(server.url, tmp_path, {"tokenFile": str(token)})
    async with connect(path, clock=time.clock_s) as api:
        await api.get(PODS.path)
        token.write_text("second", encoding="utf-8")
        server.fault("GET", PODS.path, refuse(401, "Unauthorized", "expired"))
        with pytest.raises(ApiError, match="401 Unauthorized: expired"):
            await api.get(PODS.path)
        await api.get(PODS.path)

    sent = [seen.headers["Authorization"] for seen in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


async def test_proxy_of_the_environment(server, tmp_path, monkeypatch):
    """The environment's proxy is used for servers outside no_proxy."""
    monkeypatch.setenv("http_proxy", server.url)
    async with connect(kubeconfig_for("http://api.invalid", tmp_path)) as api:
        await api.get(PODS.path)

    assert server.requests[0].headers["Host"] == "api.invalid"


async def test_proxy_of_the_kubeconfig(server, tmp_path, monkeypatch):
    """The kubeconfig's own proxy has precedence over the environment's."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    path = kubeconfig_for("http://api.invalid", tmp_path, proxy=server.url)
    async with connect(path) as api:
        await api.get(PODS.path)

    assert server.requests[0].headers["Host"] == "api.invalid"


async def test_error_without_json(server, api):
    """A proxy's page instead of a Status is quoted."""

    async def page(_request):
        return web.Response(status=502, text="<h1>Bad gateway</h1>", content_type="text/html")

    server.fault("GET", PODS.path, page)

    with pytest.raises(ApiError, match="502 Bad Gateway: <h1>Bad gateway</h1>"):
        await api.get(PODS.path)


async def test_success_without_json(server, api):
    """A success that is not JSON is an error."""

    async def page(_request):
        return web.Response(text="welcome")

    server.fault("GET", PODS.path, page)

    with pytest.raises(ApiError, match=r"the answer of .* is not JSON"):
        await api.get(PODS.path)


async def test_never_sent(server, slow):
    """Without a server, the request certainly never left."""
    await server.stop()

    with pytest.raises(ApiUnreachableError) as caught:
        await slow.get(PODS.path)

    assert not caught.value.sent


async def test_never_sent_without_a_free_connection(server, tmp_path):
    """A request that got none of the pool's connections never left."""
    path = kubeconfig_for(server.url, tmp_path)
    server.fault("GET", PODS.path, hang)
    async with connect(path, pool_size=1, timeout_s=5, connect_timeout_s=1.0) as api:
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
async def test_perhaps_sent(server, slow, fault, kind):
    """After the request has left, the error says that the write may have worked."""
    server.fault("POST", "events", fault)

    with pytest.raises(kind) as caught:
        await slow.post("/api/v1/namespaces/default/events", {})

    assert caught.value.sent


async def test_broken_answer(server, api):
    """A partial answer is an ApiUnreachableError, in a stream too."""

    async def half(request):
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


async def test_no_other_exception_leaves(server, tmp_path):
    """For any invalid address, the exception is a ClusterError."""
    unreachable = ("http://127.0.0.1:1", "http://a b", "http://[::1", "https://127.0.0.1:1")
    for url in (*unreachable, "https://host:99999", "https://host:a"):
        with pytest.raises(ClusterError):
            async with connect(kubeconfig_for(url, tmp_path), timeout_s=1) as api:
                await api.get(PODS.path)
    assert server.requests == []


async def test_https_to_an_http_port(server, tmp_path):
    """HTTPS to a port without TLS cannot connect, so nothing was sent."""
    path = kubeconfig_for(server.url.replace("http:", "https:"), tmp_path)

    async with connect(path) as api:
        with pytest.raises(ApiUnreachableError) as caught:
            await api.get(PODS.path)

    assert not caught.value.sent


async def test_patch(server, api):
    """A PATCH is a merge patch."""
    server.store.put(EVENTS, {"metadata": {"name": "e", "namespace": "default"}, "count": 1})

    answer = await api.patch("/api/v1/namespaces/default/events/e", {"count": 2})

    assert answer["count"] == 2
    assert server.requests[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_names_are_not_part_of_the_path(server, api):
    """A query's values are quoted."""
    server.put(PODS, pod("a"))

    await api.get(PODS.path, query={"labelSelector": "a=(b, c)&limit=1"})

    assert server.requests[0].query == {"labelSelector": "a=(b, c)&limit=1"}
