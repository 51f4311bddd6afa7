// Views: each draws documents of the service.

import { deadlineBar, gpuBar, legend, setFunctions, sparkline, swatch } from "./bars.js";
import { back, decimal, dollars, el, facts, gib, ms, percent, table } from "./dom.js";
import { plan } from "./plan.js";

const NODES_PER_PAGE = 20;
const HOUR_S = 3600;
const SAMPLES_S = 60; // the oldest sample is up to that much younger than an hour
const LATE_COLOURS = [["cold start", "c5"], ["queue", "c2"], ["share", "c4"], ["run, within its profile", "c3"], ["run, beyond its profile", "c1"]];
const PARTS = { profile: "run, within its profile", over_profile: "run, beyond its profile" };
const open = new Set(); // keys of opened details
let search = "";
let page = 0;

const title = (text) => el("h2", {}, text);
const empty = (text) => el("p", { class: "soft" }, text);

function warnings(overview) {
  const texts = Object.entries(overview.problems).map(([name, text]) => `${name}: ${text}`);
  if (overview.not_ready) texts.unshift(`The gateway is not ready: ${overview.not_ready}`);
  return texts.map((text) => el("p", { class: "warn" }, text));
}

function workflowCard(workflow) {
  const isBelow = workflow.in_slo_5m !== null && workflow.in_slo_5m < workflow.objective;
  const inSlo = el("span", { class: isBelow ? "bad" : null }, percent(workflow.in_slo_5m) + (isBelow ? " (below)" : ""));
  return el("li", { class: "card" },
    el("h3", {}, `${workflow.namespace}/${workflow.name}`),
    el("p", { class: "soft" }, `SLO ${ms(workflow.slo_ms)}, objective ${percent(workflow.objective)}`),
    sparkline(workflow.minutes, workflow.objective),
    el("p", { class: "note" }, "in SLO by minute, last hour; dashed: the objective"),
    facts([
      ["in SLO, 5 min", inSlo], ["in SLO, 1 h", percent(workflow.in_slo_1h)],
      ["budget burnt, 1 h", percent(workflow.budget_burnt_1h, 0)],
      ["requests/s", decimal(workflow.per_s, 1)], ["latency, p50", ms(workflow.p50_ms)], ["latency, p99", ms(workflow.p99_ms)],
      ["ran, per 1,000", dollars(workflow.ran_per_1000)], ["set aside, per 1,000", dollars(workflow.set_aside_per_1000)],
      ["limit B0, per 1,000", dollars(workflow.bound_per_1000)],
    ], "figures"));
}

function overview({ overview: document }) {
  const cards = document.workflows.map(workflowCard);
  const minutes = decimal(document.seconds / 60, 1);
  return [title("Workflows"), ...warnings(document),
    document.seconds < HOUR_S - SAMPLES_S ? empty(`Counted since ${minutes} minutes ago, when this gateway started: longer times are of these.`) : null,
    cards.length ? el("ul", { class: "cards" }, ...cards) : empty("There is no Workflow.")];
}

function functions({ overview: document }) {
  const name = (row) => `${row.namespace}/${row.name}`;
  const shares = (row) => Object.entries(row.shares).map(([share, pods]) => `${pods} x ${share}`).join("; ") || "none";
  const columns = [
    ["function", name, "text"], ["ready", (row) => row.ready], ["starting", (row) => row.starting],
    ["wanted", (row) => row.wanted], ["rows waiting", (row) => row.queued_rows],
    ["rows per batch", (row) => decimal(row.rows_per_batch)],
    ["run / profile", (row) => decimal(row.run_over_profile)],
    ["$/h", (row) => dollars(row.dollars_per_hour)], ["pods by share", shares, "long text"],
  ];
  const starts = document.workflows.map((row) => [`${row.namespace}/${row.name}`, decimal(row.cold_starts_1h, 0)]);
  return [title("Functions"), ...warnings(document),
    document.functions.length ? table("Processes of functions", columns, document.functions) : empty("No FunctionServer is in use."),
    ...Object.entries(document.pools).map(([namespace, perHour]) => el("p", {}, `The pool of namespace ${namespace} holds slices for ${dollars(perHour)}/h, in which its pooled pods run.`)),
    starts.length ? el("h3", {}, "Requests that waited for a pod's start, last hour") : null,
    starts.length ? facts(starts) : null];
}

function details(key, summary, ...children) {
  const element = el("details", { class: "gpu", open: open.has(key) }, el("summary", { "data-key": key }, ...summary), ...children);
  element.addEventListener("toggle", () => (element.open ? open.add(key) : open.delete(key)));
  return element;
}

function gpuDetails(gpu, index, running, clientsMax) {
  const [label, bar] = gpuBar(gpu, running);
  const health = gpu.healthy ? null : el("span", { class: "bad" }, " unhealthy");
  const pods = gpu.pods.map((pod) => el("li", {},
    `${pod.name}: ${pod.function || "slice of a pool"}, ${pod.slice_percent || pod.gpu_percent} %, ${gib(pod.memory_mib)}` +
    `${pod.pool ? `, ${pod.pool} of the pool` : ""}${running.has(pod.name) ? ", runs a batch" : ""}`));
  const clients = gpu.pods.filter((pod) => pod.memory_mib > 0).length;
  return details(gpu.uuid, [`GPU ${index}: ${100 - gpu.free_percent} % granted, ${clients} of ${clientsMax} MPS clients`, health, bar],
    el("p", { class: "soft" }, `${gpu.model}, ${gpu.uuid}. ${label}. Each pod with GPU memory counts as one MPS client. A pod with several processes has more: metric esg_mps_clients of the node agent has those that are connected.`),
    pods.length ? el("ul", {}, ...pods) : empty("No pod has a share of it."));
}

const text = (node) => [node.name, ...node.gpus.flatMap((gpu) => [gpu.uuid, gpu.model, ...gpu.pods.flatMap((pod) => [pod.name, pod.function])])].join(" ").toLowerCase();

function controls(pages, redraw) {
  const input = el("input", { type: "search", value: search, "data-key": "search" });
  input.addEventListener("input", () => { search = input.value; page = 0; redraw(); });
  const button = (label, step, key) => {
    const element = el("button", { type: "button", "data-key": key, disabled: page + step < 0 || page + step >= pages }, label);
    element.addEventListener("click", () => { page += step; redraw(); });
    return element;
  };
  return el("div", { class: "controls" }, el("label", {}, "Node, GPU model, function or pod", input), ...(pages < 2 ? [] : [
    button("Previous", -1, "previous"), el("span", {}, `page ${page + 1} of ${pages}`), button("Next", 1, "next")]));
}

function gpus({ overview: document, gpus: report }, _, redraw) {
  const running = new Set(document.running_pods);
  const all = report.nodes.flatMap((node) => node.gpus);
  const names = all.flatMap((gpu) => gpu.pods.map((pod) => pod.function)).filter(Boolean);
  setFunctions([...names, ...document.functions.map((row) => row.name)]);
  const words = search.toLowerCase();
  const nodes = words ? report.nodes.filter((node) => text(node).includes(words)) : report.nodes;
  const pages = Math.ceil(nodes.length / NODES_PER_PAGE);
  page = Math.max(0, Math.min(page, pages - 1));
  const granted = all.reduce((sum, gpu) => sum + 100 - gpu.free_percent, 0) / 100;
  const free = all.filter((gpu) => gpu.free_percent === 100).length;
  const ill = all.filter((gpu) => !gpu.healthy).length;
  return [title("GPUs"),
    el("p", {}, `${decimal(report.nodes.length, 0)} nodes, ${decimal(all.length, 0)} GPUs: ${decimal(granted, 1)} granted, ${decimal(free, 0)} empty, `,
      el("span", { class: ill ? "bad" : null }, `${decimal(ill, 0)} unhealthy`), "."),
    el("p", { class: "soft" }, "A full colour runs a batch now, a light one is granted and idle, a dashed frame is the slice of a pool. The thin bar is granted memory."),
    legend([...new Set(names)].sort()),
    controls(pages, redraw),
    el("div", { class: all.length > report.nodes.length ? null : "nodes" }, ...nodes.slice(page * NODES_PER_PAGE, (page + 1) * NODES_PER_PAGE).map((node) => el("section", { class: "node", "aria-label": `node ${node.name}` },
      el("h3", {}, node.name, el("span", { class: "soft" }, ` ${decimal(node.cpu_free_milli / 1000, 1)} of ${decimal(node.cpu_milli / 1000, 1)} vCPU free`)),
      el("div", { class: "gpus" }, ...node.gpus.map((gpu, index) => gpuDetails(gpu, index, running, report.clients_max)))))),
    nodes.length ? null : empty(report.nodes.length ? "No node matches." : "No node has a GPU.")];
}

function pending({ gpus: report, pod }, name) {
  if (name) {
    const plan = pod.plan;
    const reasons = Object.entries(pod.reasons ?? {});
    return [title(`Why ${pod.pod} waits`), back("pending", name),
      pod.error ? el("p", { class: "warn" }, pod.error) : null,
      plan ? el("p", {}, plan.feasible ? "The plan can be in time." : plan.message) : null,
      plan ? el("p", {}, pod.feasible_nodes ? `${pod.feasible_nodes} nodes can hold it now; kube-scheduler tries it again.` : "No node can hold it now:") : null,
      reasons.length ? table("Nodes by reason", [["reason", ([reason]) => reason, "text"], ["nodes", ([, nodes]) => nodes]], reasons) : null];
  }
  const pods = report.pending.map((pod) => el("li", {}, el("a", { href: `#pending/${pod.replace("/", ":")}` }, pod)));
  return [title("Why pending"), el("p", {}, report.pending_pods === 1 ? "1 function pod waits for a node." : `${decimal(report.pending_pods, 0)} function pods wait for a node.`),
    pods.length ? el("ul", {}, ...pods) : null];
}

function late({ requests, request }, id) {
  if (id) {
    const parts = Object.entries(request.parts_ms).filter(([, time]) => time > 0);
    const end = { hit: "in time", miss: "late", dropped: "without an answer" }[request.result];
    return [title(`Request ${request.id}`), back("late", id),
      request.client_id ? el("p", {}, `Id of its client: ${request.client_id}`) : null,
      el("p", {}, `${request.namespace}/${request.workflow}, ${request.arrived.replace("T", " ").replace("+00:00", " UTC")}: ${end}, ${ms(request.latency_ms)} of ${ms(request.allowed_ms)} allowed.`),
      request.cause ? el("p", { class: "warn" }, `Cause: ${request.explanation} (${PARTS[request.cause] ?? request.cause.replaceAll("_", " ")}).`) : null,
      request.error ? el("p", {}, request.error) : null,
      deadlineBar(request),
      el("ul", { class: "legend" }, ...LATE_COLOURS.map(([name, kind]) => el("li", {}, swatch(kind), name)), el("li", {}, swatch("ink"), "deadline")),
      table("Time on the critical path", [["part", ([name]) => PARTS[name] ?? name.replaceAll("_", " "), "text"], ["time", ([, time]) => ms(time)]], parts),
      request.stages.length ? table("Batches", [
        ["stage", (row) => row.stage, "text"], ["pod", (row) => row.pod, "text"], ["rows", (row) => row.rows],
        ["share", (row) => `${row.gpu_percent} %, ${row.cpu} vCPU`], ["waited", (row) => ms(row.cold_start_ms + row.queue_ms + row.share_ms)],
        ["ran", (row) => ms(row.run_ms)], ["profile", (row) => ms(row.profiled_ms)], ["slack", (row) => ms(row.slack_ms)],
        ...(request.stages.some((row) => row.error) ? [["error", (row) => row.error, "text"]] : [])], request.stages) : null];
  }
  const link = (row) => el("a", { href: `#late/${encodeURIComponent(row.id)}` }, row.client_id ?? row.id);
  return [title("Why late"),
    requests.length
      ? table("The last late requests", [["request", link, "text"], ["workflow", (row) => `${row.namespace}/${row.workflow}`, "text"],
        ["cause", (row) => (row.error ? `${row.error} (${row.explanation})` : row.explanation), "text"], ["late by", (row) => ms(row.late_ms)], ["latency", (row) => ms(row.latency_ms)],
        ["arrived, UTC", (row) => row.arrived.slice(5, 23).replace("T", " ")]], requests)
      : empty("No request was late.")];
}

// Documents of a view by name; {} stands for what is behind the slash of the address.
export const views = {
  overview: { draw: overview, documents: () => ({ overview: "v1/overview" }) },
  gpus: { draw: gpus, documents: () => ({ overview: "v1/overview", gpus: "v1/gpus" }) },
  functions: { draw: functions, documents: () => ({ overview: "v1/overview" }) },
  pending: { draw: pending, documents: (name) => (name ? { pod: `v1/pending/${encodeURIComponent(name)}` } : { gpus: "v1/gpus" }) },
  plan: { draw: plan, documents: (name) => (name ? { plan: `v1/plans/${encodeURIComponent(name)}` } : { overview: "v1/overview" }) },
  late: { draw: late, documents: (id) => (id ? { request: `v1/requests/${encodeURIComponent(id)}` } : { requests: "v1/requests" }) },
};
