// Plan of a workflow: stages over the SLO, cost over time, and the candidates of its first stage.

import { costCurve, planBars, swatch } from "./bars.js";
import { back, decimal, dollars, el, facts, ms, percent, table } from "./dom.js";

const per1000 = (cost) => dollars(1000 * cost);
const share = (row) => `batch ${row.batch}, ${row.cpu} vCPU, ${row.gpu_percent} % GPU`;

function list(workflows) {
  const items = workflows.map((workflow) => {
    const name = `${workflow.namespace}/${workflow.name}`;
    const address = `#plan/${encodeURIComponent(`${workflow.namespace}:${workflow.name}`)}`;
    return el("li", {}, el("a", { href: address }, name), `: SLO ${ms(workflow.slo_ms)}, stages ${workflow.stages.map((stage) => stage.name).join(", ")}`);
  });
  return [el("h2", {}, "Plan"), items.length ? el("ul", {}, ...items) : el("p", { class: "soft" }, "There is no Workflow.")];
}

function stages(plan) {
  return [el("h3", {}, "Stage by stage"), planBars(plan),
    el("ul", { class: "legend" }, el("li", {}, swatch("c1"), "planned run"), el("li", {}, swatch("budget"), "its part of the SLO"), el("li", {}, swatch("ink"), "deadline")),
    table("Best completion, from now", [
      ["stage", (row) => row.stage, "text"], ["share", share, "text"], ["MiB", (row) => decimal(row.memory_mib, 0)],
      ["from", (row) => ms(row.from_ms)], ["to", (row) => ms(row.to_ms)],
      ["part of the SLO", (row) => `${decimal(row.budget_from_ms, 0)} to ${ms(row.budget_to_ms)}`],
      ["$/1,000", (row) => per1000(row.cost)], ["GPU model", (row) => row.gpu_model, "text"]], plan.completion)];
}

function cost(plan) {
  const heading = el("h3", {}, "Cost over time");
  if (!plan.curves.length) return [heading, el("p", {}, "No configuration sustains the rate, whatever the time.")];
  const first = plan.curves[0].points.at(0);
  const last = plan.curves[0].points.at(-1);
  const label = `The fastest completion takes ${ms(first[0])} and costs ${per1000(first[1])} per 1,000 requests, ` +
    `the cheapest ${ms(last[0])} and ${per1000(last[1])}. The plan ends after ${ms(plan.path_ms)}.`;
  return [heading, costCurve(plan, label), el("p", { class: "soft" }, label)];
}

function candidates(plan) {
  const scope = plan.covers_workflow ? "" : " Time and cost are of the stage's group alone.";
  return [el("h3", {}, `Candidates for ${plan.stage}`),
    el("p", { class: "soft" }, `Tried in this order; the first that fits on a node is selected.${scope}`),
    table("Completions through each candidate", [
      ["share", share, "text"], ["MiB", (row) => decimal(row.memory_mib, 0)], ["stage", (row) => ms(row.stage_ms)],
      ["path", (row) => ms(row.path_ms)], ["$/1,000", (row) => per1000(row.path_cost)], ["GPU model", (row) => row.gpu_model, "text"]], plan.candidates)];
}

export function plan({ overview, plan: document }, name) {
  if (!name) return list(overview.workflows);
  const head = [el("h2", {}, `Plan of ${document.workflow}`), back("plan", name)];
  if (document.error) return [...head, el("p", { class: "warn" }, document.error)];
  return [...head, ...document.remarks.map((remark) => el("p", { class: "warn" }, remark)),
    el("p", {}, `A new request, on ${document.models.join(", ") || "any GPU with a profile: no node has one"}.`),
    facts([["$/1,000", per1000(document.cost)], ["planned", ms(document.path_ms)], ["time left", ms(document.slack_ms)],
      ["SLO", ms(document.slo_ms)], ["margin", percent(document.margin_ratio)]], "figures"),
    ...stages(document), ...cost(document), ...candidates(document)];
}
