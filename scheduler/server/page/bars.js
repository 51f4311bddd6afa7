// Bars and lines as SVG, each with a text for readers of the screen.

import { dollars, el, gib, ms, percent, svg } from "./dom.js";

const COLOURS = 8;
let functionNames = [];

// Colours follow the sorted names of functions, so that they are the same in all views.
export function setFunctions(names) {
  functionNames = [...new Set(names)].sort();
}

export const colour = (name) => `c${(Math.max(functionNames.indexOf(name), 0) % COLOURS) + 1}`;

export function legend(names) {
  return el("ul", { class: "legend", "aria-label": "Colours of functions" }, ...names.map((name) =>
    el("li", {}, swatch(colour(name)), name)));
}

export const swatch = (kind) =>
  svg("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { width: 1, height: 1, class: kind }));

export function sparkline(minutes, objective) {
  const ratios = minutes.map(([ratio]) => ratio);
  const seen = ratios.filter((ratio) => ratio !== null);
  const low = Math.min(objective, ...seen) - 0.005;
  const y = (ratio) => 30 - (28 * (ratio - low)) / (1.002 - low);
  const segments = [[]]; // minutes without a request part them
  ratios.forEach((ratio, index) => (ratio === null ? segments.push([]) : segments.at(-1).push(`${60 - ratios.length + index + 1},${y(ratio)}`)));
  const label = seen.length
    ? `Ratio in SLO by minute, last hour: lowest ${percent(Math.min(...seen))}, last ${percent(seen.at(-1))}; objective ${percent(objective)}`
    : "No request in the last hour";
  return svg("svg", { class: "spark", viewBox: "0 0 61 32", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: 61, y1: y(objective), y2: y(objective), class: "aim" }),
    ...segments.filter((segment) => segment.length).map((segment) =>
      svg("polyline", { points: [...segment, segment.at(-1)].join(" "), class: "line" })));
}

// Shares of a GPU: a slice of a pool is a frame, and what runs now is filled.
export function gpuBar(gpu, running) {
  const parts = [svg("rect", { width: 100, height: 12, class: "track" })];
  let at = 0;
  let runs = 0;
  const draw = (pod, x, width) => {
    const isRunning = running.has(pod.name);
    runs += isRunning ? width : 0;
    parts.push(svg("rect", { x, width, height: 12, class: `${colour(pod.function)}${isRunning ? "" : " idle"}` }));
    return x + width;
  };
  const namespace = (pod) => pod.name.split("/")[0];
  for (const holder of gpu.pods.filter((pod) => pod.pool === "holder")) {
    let inside = at;
    for (const pod of gpu.pods) {
      const isMember = pod.pool === "member" && namespace(pod) === namespace(holder) && pod.group === holder.group;
      if (isMember && running.has(pod.name)) inside = draw(pod, inside, pod.slice_percent);
    }
    parts.push(svg("rect", { x: at, width: holder.gpu_percent, height: 12, class: "frame" }));
    at += holder.gpu_percent;
  }
  for (const pod of gpu.pods) {
    if (!pod.pool && pod.gpu_percent) at = draw(pod, at, pod.gpu_percent);
  }
  const usedMib = gpu.memory_mib - gpu.free_memory_mib;
  parts.push(svg("rect", { y: 14, width: 100, height: 4, class: "track" }),
    svg("rect", { y: 14, width: (100 * usedMib) / gpu.memory_mib, height: 4, class: "memory" }));
  const label = `${100 - gpu.free_percent} % granted, ${runs} % runs; ${gib(usedMib)} of ${gib(gpu.memory_mib)} granted`;
  return [label, svg("svg", { viewBox: "0 0 100 18", preserveAspectRatio: "none", class: "bar", role: "img", "aria-label": label }, ...parts)];
}

const WAITS = [["cold_start_ms", "c5"], ["queue_ms", "c2"], ["share_ms", "c4"]];

// First and last time of rows of bars, below them.
const scale = (begin, end) => [el("span"), el("div", { class: "ends" }, el("span", {}, ms(begin)), el("span", {}, ms(end)))];

// Stages of a request over time, a row for each batch, with its deadline.
export function deadlineBar(report) {
  const end = Math.max(report.latency_ms, report.allowed_ms) || 1;
  const x = (time) => (100 * time) / end;
  const row = (name, parts) => {
    let at = parts[0][0];
    const rects = parts.map(([from, length, kind]) => {
      at = from ?? at;
      const rect = length > 0 ? svg("rect", { x: x(at), width: x(length), height: 10, class: kind }) : null;
      at += length;
      return rect;
    });
    const deadline = svg("line", { x1: x(report.allowed_ms), x2: x(report.allowed_ms), y1: 0, y2: 10, class: "deadline" });
    return [el("span", {}, name), svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" }, ...rects.filter(Boolean), deadline)];
  };
  const stages = report.stages.map((stage) => row(stage.stage + (stage.error ? " (failed)" : ""), [
    [stage.since_ms, 0, ""], ...WAITS.map(([key, kind]) => [null, stage[key], kind]),
    [null, stage.profile_ms, "c3"], [null, stage.over_profile_ms, "c1"]]));
  const waits = report.waits.map((wait) => row(wait.stage, [[wait.since_ms, report.latency_ms - wait.since_ms, "c2"]]));
  const label = `Stages over ${ms(report.latency_ms)}; the deadline is at ${ms(report.allowed_ms)}. The table below has the numbers.`;
  return el("div", { class: "deadlines", role: "img", "aria-label": label }, ...stages.flat(), ...waits.flat(), ...scale(0, end));
}

// Planned runs of stages over their parts of the SLO, a row for each, with the deadline.
export function planBars(plan) {
  const times = plan.completion.flatMap((run) => [run.to_ms, run.budget_to_ms]);
  const begin = Math.min(0, ...plan.completion.map((run) => run.budget_from_ms));
  const end = Math.max(plan.slack_ms, ...times) || 1;
  const x = (time) => (100 * (time - begin)) / (end - begin);
  const span = (from, to, y, height, kind) => svg("rect", { x: x(from), width: x(to) - x(from), y, height, class: kind });
  const rows = plan.completion.flatMap((run) => [el("span", {}, run.stage),
    svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" },
      svg("rect", { width: 100, height: 10, class: "track" }),
      span(run.budget_from_ms, run.budget_to_ms, 0, 10, "budget"), span(run.from_ms, run.to_ms, 2.5, 5, "c1"),
      svg("line", { x1: x(plan.slack_ms), x2: x(plan.slack_ms), y1: 0, y2: 10, class: "deadline" }))]);
  const past = plan.completion.filter((run) => run.to_ms > run.budget_to_ms).map((run) => run.stage);
  const label = `Planned runs of ${plan.completion.length} stages; the deadline is at ${ms(plan.slack_ms)}. ` +
    `Planned to end after their part of the SLO: ${past.join(", ") || "none"}. The table below has the numbers.`;
  return el("div", { class: "deadlines", role: "img", "aria-label": label }, ...rows, ...scale(begin, end));
}

// Cost of completions as steps over their time, on a logarithmic axis, and the plan as a point.
export function costCurve(plan, label) {
  const points = plan.curves.flatMap((curve) => curve.points).filter(([, cost]) => cost !== null);
  const times = [...points.map(([time]) => time), plan.path_ms, plan.slack_ms].filter((time) => time > 0);
  const [low, high] = [Math.log(0.95 * Math.min(...times)), Math.log(1.05 * Math.max(...times))];
  const top = 1.1 * Math.max(plan.cost, ...points.map(([, cost]) => cost));
  const x = (time) => (100 * (Math.log(time) - low)) / (high - low);
  const y = (cost) => 40 - (40 * cost) / top;
  const steps = (curve) => {
    const path = [];
    for (const [time, cost] of curve.points) {
      if (cost === null) continue;
      if (path.length) path.push(`${x(time)},${path.at(-1).split(",")[1]}`);
      path.push(`${x(time)},${y(cost)}`);
    }
    path.push(`100,${path.at(-1).split(",")[1]}`);
    return path.join(" ");
  };
  const lines = plan.curves.map((curve, index) => svg("polyline", { points: steps(curve), class: index ? "line other" : "line" }));
  const at = [x(plan.path_ms), y(plan.cost)];
  return el("figure", {},
    el("div", { class: "ends" }, `${dollars(1000 * top)} for 1,000 requests`),
    svg("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", class: "curve", role: "img", "aria-label": label },
      svg("line", { x1: 0, x2: 100, y1: 40, y2: 40, class: "aim" }),
      plan.slack_ms > 0 ? svg("line", { x1: x(plan.slack_ms), x2: x(plan.slack_ms), y1: 0, y2: 40, class: "deadline" }) : null,
      ...lines, svg("line", { x1: at[0], x2: at[0], y1: at[1], y2: at[1], class: "point" })),
    el("div", { class: "ends" }, el("span", {}, ms(Math.exp(low))), el("span", {}, `${ms(Math.exp(high))}, logarithmic`)),
    el("ul", { class: "legend" }, ...plan.curves.map((curve, index) => el("li", {}, swatch(index ? "c2" : "c1"), curve.name)),
      el("li", {}, swatch("c3"), "the plan"), el("li", {}, swatch("ink"), "deadline")));
}
