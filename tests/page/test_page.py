"""The live page in Chromium: each view over a played cluster of known numbers."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.page import cluster
from tests.page.conftest import CHROMIUM
from tests.page.served import page_server
from tests.require import needing

pytestmark = [pytest.mark.slow, needing(CHROMIUM, "needs Debian's package chromium")]
VIEWS = ("overview", "gpus", "functions", "plan", "pending", "late")
DEEPER = ("plan/vision:street", "pending/vision:detect-9", "late/0badcafe-1")


@pytest.fixture(scope="module")
def played():
    with page_server(cluster.played()) as url:
        yield url


def test_overview_has_the_figures_of_each_workflow(visit, played):
    """The one below its objective says so in words."""
    text = visit(played).view("overview")
    for figure in ("vision/street", "SLO 400 ms, objective 99.0 %", "99.5 %", "99.2 %", "80 %",
                   "123.4", "120 ms", "380 ms", "$0.0123", "$0.0456", "$0.0100"):  # fmt: skip
        assert figure in text
    assert "91.0 % (below)" in text
    assert "99.5 % (below)" not in text


def test_a_young_gateway_has_a_dot_for_its_first_minute(visit):
    """Minutes without a request part the line, and "1 h" is said to be of less."""
    documents = cluster.played()
    overview = documents["/v1/overview"]
    overview["seconds"] = 240.0
    minutes = [[0.95, 20.0], [None, 0.0], [0.99, 20.0], [1.0, 20.0]]
    overview["workflows"] = [cluster.workflow("street", budget_burnt_1h=12.5, minutes=minutes)]
    with page_server(documents) as url:
        visited = visit(url)
        text = visited.view("overview")
    assert "Counted since 4.0 minutes ago" in text
    assert "1,250 %" in text
    lines = visited.page.locator(".spark .line")
    assert [len(lines.nth(i).get_attribute("points").split()) for i in range(2)] == [2, 3]
    assert lines.count() == 2
    assert lines.first.evaluate("line => getComputedStyle(line).strokeLinecap") == "round"


def test_gpus_have_their_shares(visit, played):
    """Bars say what is granted and what runs; details name the pods."""
    visited = visit(played)
    text = visited.view("gpus")
    assert "2 nodes, 4 GPUs: 1.4 granted, 2 empty, 1 unhealthy." in text
    bars = visited.page.locator("svg.bar")
    assert [bars.nth(i).get_attribute("aria-label") for i in range(4)] == [
        "80 % granted, 30 % runs; 24.0 GiB of 80.0 GiB granted",
        "60 % granted, 40 % runs; 8.0 GiB of 80.0 GiB granted",
        "0 % granted, 0 % runs; 0.0 GiB of 80.0 GiB granted",
        "0 % granted, 0 % runs; 0.0 GiB of 80.0 GiB granted",
    ]
    widths = (
        bars.nth(0)
        .locator("rect")
        .evaluate_all(
            "rects => rects.slice(1, 4).map("
            "r => [+r.getAttribute('width'), r.classList.contains('idle')])"
        )
    )
    assert widths == [[30, False], [30, True], [20, True]]
    assert visited.page.locator("summary").all_inner_texts() == [
        "GPU 0: 80 % granted, 3 of 48 MPS clients",
        "GPU 1: 60 % granted, 1 of 48 MPS clients",  # the holder of a slice has no process
        "GPU 0: 0 % granted, 0 of 48 MPS clients",
        "GPU 1: 0 % granted, 0 of 48 MPS clients unhealthy",
    ]
    visited.page.locator("summary").first.click()
    assert "vision/detect-0: detect, 30 %, 8.0 GiB, runs a batch" in visited.page.inner_text("main")


def test_functions_have_their_processes(visit, played):
    """Ready, starting and wanted pods, batches, and observed over profiled time."""
    visited = visit(played)
    visited.view("functions")
    row = visited.page.locator("tbody tr").first.inner_text().split("\t")
    assert row == ["vision/detect", "3", "1", "4", "12", "3.25", "1.08", "$3.50",
                   "4 x 30 %, 2 vCPU, A100"]  # fmt: skip
    pooled = visited.page.locator("tbody tr").nth(2).inner_text().split("\t")
    assert (pooled[0], pooled[7]) == ("vision/ocr", "\N{EN DASH}")
    text = "The pool of namespace vision holds slices for $4.50/h"
    assert text in visited.page.inner_text("main")


def test_a_workflow_has_its_plan(visit, played):
    """Stages over their parts of the SLO, cost over time, and the candidates."""
    visited = visit(played)
    assert "vision/street: SLO 400 ms, stages detect" in visited.view("plan")
    visited.page.get_by_role("link", name="vision/street").click()
    visited.page.get_by_role("heading", name="Plan of vision/street").wait_for()
    text = visited.page.inner_text("main")
    for figure in ("$0.0200", "300 ms", "400 ms", "2.0 %", "batch 4, 2 vCPU, 30 % GPU"):
        assert figure in text
    assert "the cheapest 600 ms and $0.0100. The plan ends after 300 ms." in text
    bars = visited.page.locator(".deadlines")
    assert "after their part of the SLO: detect." in bars.get_attribute("aria-label")
    widths = bars.locator("rect.c1").evaluate_all("all => all.map(r => +r.getAttribute('width'))")
    assert widths == [pytest.approx(100 * 210 / 400), pytest.approx(100 * 90 / 400)]
    assert visited.page.locator("tbody tr").count() == len(cluster.PLAN["completion"]) + 2


def test_a_workflow_that_cannot_be_planned_says_so(visit, played):
    """The view has the planner's message."""
    assert "function x has no profile" in visit(played).view("plan/vision:broken")


def test_pending_pods_have_reasons_in_words(visit, played):
    """A link leads from the list to the reasons."""
    visited = visit(played)
    assert "1 function pod waits for a node." in visited.view("pending")
    visited.page.get_by_role("link", name="vision/detect-9").click()
    visited.page.get_by_role("heading", name="Why vision/detect-9 waits").wait_for()
    assert "no GPU has 30 % free\t12" in visited.page.inner_text("main")


def test_late_requests_have_a_cause(visit, played):
    """The list has the cause; the request its bar by stage."""
    visited = visit(played)
    assert "it waited for the start of a pod" in visited.view("late")
    visited.page.get_by_role("link", name="0badcafe-1").click()
    visited.page.get_by_role("heading", name="Request 0badcafe-1").wait_for()
    text = visited.page.inner_text("main")
    assert "Cause: it waited for the start of a pod (cold start)." in text
    assert "cold start\t250 ms" in text
    assert visited.page.locator(".deadlines .ends").inner_text().split("\n") == ["0 ms", "480 ms"]
    bar = visited.page.locator(".deadlines")
    assert "the deadline is at 400 ms" in bar.get_attribute("aria-label")
    waits = bar.locator("rect.c5")
    assert float(waits.first.get_attribute("width")) == pytest.approx(100 * 250 / 480)


def test_a_client_finds_its_own_id(visit):
    """A late request has the id that its client sent, and the day of its arrival."""
    documents = cluster.played()
    documents["/v1/requests"] = [cluster.LINE | {"client_id": "mine", "error": "no pod answered"}]
    documents["/v1/requests/"] = {"0badcafe-1": cluster.REQUEST | {"client_id": "mine"}}
    with page_server(documents) as url:
        visited = visit(url)
        text = visited.view("late")
        assert "01-01 12:34:56.789" in text
        assert "no pod answered (it waited for the start of a pod)" in text
        visited.page.get_by_role("link", name="mine").click()
        visited.page.get_by_role("heading", name="Request 0badcafe-1").wait_for()
        assert "Id of its client: mine" in visited.page.inner_text("main")


def test_an_empty_cluster_says_so(visit):
    """Nothing is there, and no view fails."""
    documents = cluster.empty()
    with page_server(documents) as url:
        visited = visit(url)
        assert "There is no Workflow." in visited.view("overview")
        assert "No node has a GPU." in visited.view("gpus")
        assert "No FunctionServer is in use." in visited.view("functions")
        assert "There is no Workflow." in visited.view("plan")
        assert "0 function pods wait" in visited.view("pending")
        assert "No request was late." in visited.view("late")
    assert not visited.problems


def test_a_broken_cluster_says_so(visit):
    """A gateway that is not ready, a broken document, and GPUs that cannot be read."""
    documents = cluster.played()
    documents["/v1/overview"]["workflows"].append(cluster.idle_workflow())
    documents["/v1/overview"]["not_ready"] = "nodes: no answer"
    documents["/v1/overview"]["problems"] = {"Workflow vision/x": "<b>no profile</b>"}
    del documents["/v1/gpus"]
    with page_server(documents | {"/v1/gpus": float}) as url:  # which cannot be written as JSON
        visited = visit(url)
        text = visited.view("overview")
        assert "The gateway is not ready: nodes: no answer" in text
        assert "Workflow vision/x: <b>no profile</b>" in text
        assert "v1/gpus: 500" in visited.view("gpus")
        assert visited.page.inner_text("#state") == "no answer"


def test_a_gateway_without_an_extender_says_what_to_do(visit):
    """Its own views are there; those of the extender name the setting that they need."""
    gateway, _ = cluster.parts(cluster.played())
    with page_server(gateway) as url:
        visited = visit(url)
        assert "vision/street" in visited.view("overview")
        for view in ("plan/vision:street", "gpus", "pending"):
            text = visited.view(view)
            assert "Not available" in text
            assert "set ESG_GATEWAY_EXTENDER_URL" in text
            assert "404" not in text


def test_a_gateway_passes_the_extenders_documents_on(visit):
    """GPUs, pending pods and plans come through the gateway's port; what is unknown stays so."""
    gateway, extender = cluster.parts(cluster.played())
    with page_server(extender) as extender_url, page_server(gateway, extender_url) as url:
        visited = visit(url)
        assert "Plan of vision/street" in visited.view("plan/vision:street")
        assert "batch 4, 2 vCPU, 30 % GPU" in visited.page.inner_text("main")
        assert "2 nodes, 4 GPUs" in visited.view("gpus")
        assert "no GPU has 30 % free" in visited.view("pending/vision:detect-9")
        answer = visited.page.request.get(f"{url}/v1/plans/vision:none")
        assert (answer.status, answer.json()["detail"]) == (404, "/v1/plans/ has no vision:none")
        assert {link.split("/")[2] for link in visited.requests if link.startswith("http")} == {
            url.split("/")[2]
        }


def test_an_unknown_request_says_so(visit, played):
    """It may have left the ring; the way back to the list stays."""
    visited = visit(played)
    text = visited.view("late/another")
    assert "no request another is known: it was in time" in text
    visited.page.get_by_role("link", name="All late requests").click()
    visited.page.get_by_role("heading", name="Why late").wait_for()


def test_figures_of_a_gateway_that_stopped_are_marked(visit):
    """The last figures stay, and say of when they are; another view says what to do."""
    with page_server(cluster.played()) as url:
        visited = visit(url)
        visited.view("overview")
    visited.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    visited.page.locator("#stale").wait_for()
    stale = visited.page.inner_text("#stale")
    assert re.match(r"No answer: the figures below are of \d\d:\d\d:\d\d\. Nothing", stale)
    assert "vision/street" in visited.page.inner_text("main")
    assert visited.page.inner_text("#state") == "no answer"
    visited.page.get_by_role("link", name="Why late").click()
    visited.page.get_by_role("heading", name="No answer").wait_for()
    text = visited.page.inner_text("main")
    assert "forward the port again" in text
    assert "Failed to fetch" not in text
    colour = "element => getComputedStyle(element).color"
    state, *usual = (visited.page.locator(e).evaluate(colour) for e in ("#state", "h1", "footer"))
    assert state not in usual


@pytest.mark.parametrize("view", [*VIEWS, *DEEPER])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, played, view, scheme):
    """Contrast, names, roles and order are those of WCAG, on light and on dark."""
    visited = visit(played, color_scheme=scheme)
    visited.view(view)
    findings = Axe().run(visited.page).response["violations"]
    assert [(f["id"], f["nodes"][0]["html"]) for f in findings] == []


@pytest.mark.parametrize("view", [*VIEWS, *DEEPER])
def test_a_phone_shows_it_whole(visit, played, view):
    """Nothing but tables is wider than 390 px."""
    visited = visit(played, viewport={"width": 390, "height": 844})
    visited.view(view)
    assert visited.is_as_wide_as_the_window


def test_nothing_comes_from_another_host(visit, played):
    """Neither files nor documents; and the policy forbids it."""
    visited = visit(played)
    for view in (*VIEWS, *DEEPER):
        visited.view(view)
    assert {url.split("/")[2] for url in visited.requests if not url.startswith("data:")} == {
        played.split("/")[2]
    }
    assert not visited.problems
    answer = visited.page.request.get(played)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert visited.page.request.post(f"{played}/").status == 405


def test_keys_reach_every_view(visit, played):
    """Tab goes from the skip link over the views; a search keeps the focus as it draws."""
    visited = visit(played)
    visited.view("overview")
    names = []
    for _ in range(7):
        visited.page.keyboard.press("Tab")
        names.append(visited.page.evaluate("document.activeElement.textContent"))
    assert names == ["Skip to the content", "Overview", "GPUs", "Functions", "Plan",
                     "Why pending", "Why late"]  # fmt: skip
    visited.view("gpus")
    visited.page.get_by_role("searchbox").focus()
    visited.page.keyboard.type("node-b")
    assert visited.page.evaluate("document.activeElement.type") == "search"
    assert visited.page.locator("section.node h3").count() == 1


def test_eight_thousand_gpus_are_paged(visit):
    """Twenty nodes are drawn; a search looks through all; the answer is compressed."""
    documents = cluster.large()
    with page_server(documents) as url:
        visited = visit(url)
        sizes = []
        visited.page.on(
            "requestfinished",
            lambda r: r.url.endswith("gpus") and sizes.append(r.sizes()["responseBodySize"]),
        )
        text = visited.view("gpus")
        assert "1,000 nodes, 8,000 GPUs" in text
        assert visited.page.locator("section.node").count() == 20
        visited.page.get_by_role("button", name="Next").click()
        assert "page 2 of 50" in visited.page.inner_text("main")
        visited.page.get_by_role("searchbox").fill("node-0999")
        assert visited.page.locator("section.node").count() == 1
    whole = len(json.dumps(documents["/v1/gpus"]))
    assert sizes[0] < whole / 5
