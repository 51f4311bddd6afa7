// Bars and lines as SVG, each with a text for readers of the screen.

import { el, gib, ms, percent, svg } from "./dom.js";

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
  const points = ratios.map((ratio, index) => (ratio === null ? null : `${60 - ratios.length + index + 1},${y(ratio)}`));
  const label = seen.length
    ? `Ratio in SLO by minute, last hour: lowest ${percent(Math.min(...seen))}, last ${percent(seen.at(-1))}; objective ${percent(objective)}`
    : "No request in the last hour";
  return svg("svg", { class: "spark", viewBox: "0 0 61 32", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: 61, y1: y(objective), y2: y(objective), class: "aim" }),
    svg("polyline", { points: points.filter(Boolean).join(" "), class: "line" }));
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
      const isMember = pod.pool === "member" && namespace(pod) === namespace(holder);
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
  return el("div", { class: "deadlines", role: "img", "aria-label": label }, ...stages.flat(), ...waits.flat());
}
