"""``esg why``: a late request from a gateway's health port, and through the API server's proxy."""

import json
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.command_line import esg
from tests.http_in_thread import json_served_in_thread, served_in_thread
from workbench.cluster.api_server import write_kubeconfig

STAGE = {
    "stage": "detect", "pod": "vision/detect-0", "node": "n0", "gpu_model": "T4", "cpu": 2,
    "gpu_percent": 30, "pooled": False, "rows": 4, "planned_batch": 4, "since_ms": 1.0,
    "begin_ms": 901.0, "execute_ms": 901.0, "ended_ms": 1001.0, "planned_end_ms": 991.0,
    "profiled_ms": 90.0, "slack_ms": 99.0, "served_as_late": False, "critical": True,
    "error": "", "cold_start_ms": 900.0, "queue_ms": 0.0, "share_ms": 0.0, "run_ms": 100.0,
    "profile_ms": 90.0, "over_profile_ms": 10.0,
}  # fmt: skip
REPORT = {
    "id": "1-1", "namespace": "vision", "workflow": "w", "arrived": "2026-01-01T00:00:00.000+00:00",
    "result": "miss", "error": "", "latency_ms": 1001.0, "allowed_ms": 1000.0,
    "cause": "cold_start", "explanation": "it waited for the start of a pod",
    "parts_ms": {"receive": 1.0, "cold_start": 900.0, "profile": 90.0, "over_profile": 10.0},
    "stages": [STAGE], "waits": [],
}  # fmt: skip
LINE = {
    key: REPORT[key]
    for key in ("id", "namespace", "workflow", "arrived", "result", "error", "latency_ms",
                "allowed_ms", "cause", "explanation")
} | {"client_id": None, "late_ms": 1.0}  # fmt: skip
OF_A_GROUP = {**REPORT, "id": "3-3"}
PROXY = "/api/v1/namespaces/esg/pods/{}:8890/proxy"
COMPONENTS = {
    "gateway-0": "gateway", "gateway-1": "gateway", "gateway-a-0": "gateway-a", "agent": "agent",
}  # fmt: skip


def pod(name, component):
    """Describe a pod of the chart."""
    prefix = "app.kubernetes.io"
    labels = {f"{prefix}/name": "esg-scheduler", f"{prefix}/component": component}
    return {"metadata": {"namespace": "esg", "name": name, "labels": labels}}


def matches(raw, selector):
    """Return true if a pod has the labels of equalities, and none of inequalities."""
    labels = raw["metadata"]["labels"]
    parts = [part.partition("=") for part in selector.split(",")]
    return all(
        labels.get(name.rstrip("!")) != value if name.endswith("!") else labels.get(name) == value
        for name, _, value in parts
    )


@pytest.fixture
def server():
    """Serve a gateway's document, and an API server in front of three of them and an agent."""
    pods = [pod(*component) for component in COMPONENTS.items()]
    answers = {
        "/v1/requests": [],
        PROXY.format("gateway-0") + "/v1/requests": [LINE],
        PROXY.format("gateway-1") + "/v1/requests": [
            LINE
            | {
                "id": "9-9",
                "client_id": "mine",
                "arrived": "2026-01-01T00:01:00.000+00:00",
                "error": "no pod answered",
            }
        ],
        "/v1/requests/1-1": REPORT,
        "/v1/requests/4-4": REPORT
        | {
            "client_id": "mine",
            "latency_ms": 30_000.0,
            "parts_ms": {"queue": 27_000.0, "share": 1_500.0, "profile": 1_500.0},
        },
        PROXY.format("gateway-1") + "/v1/requests/1-1": REPORT,
        PROXY.format("gateway-a-0") + "/v1/requests/3-3": OF_A_GROUP,
        PROXY.format("agent") + "/v1/requests/2-2": REPORT,
    }

    def answer(path):
        url = urlsplit(path)
        if url.path == "/api/v1/pods":
            (selector,) = parse_qs(url.query)["labelSelector"]
            return 200, {"items": [raw for raw in pods if matches(raw, selector)]}
        if url.path in answers:
            return 200, answers[url.path]
        return 404, {"detail": "there is no such request"}

    with json_served_in_thread(answer) as url:
        yield url


def test_cause_and_stages_are_printed(server):
    """The cause in words, the parts of the time, and each stage with its pod."""
    result = esg("why", "1-1", "--from", server)
    assert result.exit_code == 0
    assert "cause: cold_start: it waited for the start of a pod" in result.stdout
    assert "1,001.0 ms, 1,000.0 ms allowed" in result.stdout
    assert "vision/detect-0, 30 % GPU, 2 vCPU" in result.stdout


def test_bars_of_a_very_late_request_keep_their_ratio(server):
    """The longest time has the whole width, not that of the SLO; the client's id is there."""
    lines = esg("why", "4-4", "--from", server).stdout.splitlines()
    bars = [line.count("#") for line in lines if " ms  #" in line]
    assert bars == [54, 3, 3]
    assert "  id of its client: mine" in lines


def test_late_requests_are_listed(server, tmp_path):
    """Without an ID: those of all gateways, the newest first; or that there is none."""
    write_kubeconfig(tmp_path / "kubeconfig", server)
    options = "--kubeconfig", str(tmp_path / "kubeconfig")
    result = esg("why", *options)
    assert result.exit_code == 0, result.output
    head, first, second, *_ = (line.split() for line in result.stdout.splitlines())
    assert head[:2] == ["request", "workflow"]
    assert first[:7] == ["mine", "vision/w", "1.0", "1,001.0", "1,000.0", "01-01", "00:01:00.000"]
    assert first[7:10] == ["no", "pod", "answered"]
    assert second[0] == "1-1"
    assert [row["id"] for row in json.loads(esg("why", "--json", *options).stdout)] == [
        "9-9",
        "1-1",
    ]
    assert esg("why", "--from", server).stdout == "No request was late.\n"


def test_every_gateway_is_asked_through_the_api_server(server, tmp_path):
    """The request is that of the second replica."""
    write_kubeconfig(tmp_path / "kubeconfig", server)
    result = esg("why", "1-1", "--kubeconfig", str(tmp_path / "kubeconfig"), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == REPORT


def test_gateways_of_groups_are_asked_too(server, tmp_path):
    """Their pods have another component, with the group in its name."""
    write_kubeconfig(tmp_path / "kubeconfig", server)
    result = esg("why", "3-3", "--kubeconfig", str(tmp_path / "kubeconfig"), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == OF_A_GROUP


def test_unknown_request_is_an_error(server, tmp_path):
    """The message says why a request may be unknown."""
    write_kubeconfig(tmp_path / "kubeconfig", server)
    for options in (["--from", server], ["--kubeconfig", str(tmp_path / "kubeconfig")]):
        result = esg("why", "2-2", *options)
        assert result.exit_code == 1
        assert "no gateway has the request 2-2" in result.stderr


def test_a_gateway_that_cannot_be_read_is_named(tmp_path):
    """Printing the others alone would say that they are all."""
    ended = pod("gateway-9", "gateway") | {"status": {"phase": "Failed"}}  # as after an eviction
    pods = [ended, *(pod(*component) for component in COMPONENTS.items())]

    def answer(path):
        if path.startswith("/api/v1/pods"):
            return 200, {"items": pods}
        return (503, {}) if "/gateway-0:" in path or "/gateway-9:" in path else (200, [])

    with json_served_in_thread(answer) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        result = esg("why", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (result.exit_code, result.stdout) == (0, "No request was late.\n")
    assert "without pod esg/gateway-0: 503" in result.stderr
    assert "gateway-9" not in result.stderr


def test_unreachable_gateway_is_an_error():
    """The message names the address."""
    result = esg("why", "1-1", "--from", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "cannot read http://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("arguments", [("why", "1-1"), ("why",), ("status",)])
def test_another_server_is_an_error(arguments):
    """A port that has no such documents, or another page for each path, is said to be another."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    with json_served_in_thread(lambda _: (404, {})) as url, served_in_thread(Page) as page:
        for address in (url, page):
            result = esg(*arguments, "--from", address)
            assert result.exit_code == 1
            assert f"give a gateway's health port in place of {address}" in result.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:8890", "localhost:8890", "ftp://127.0.0.1:8890"])
def test_an_address_is_no_url(url):
    """The message says what to write."""
    result = esg("why", "1-1", "--from", url)
    assert result.exit_code == 1
    assert f"'{url}' is no URL; write http://HOST:8890" in result.stderr
