// Elements and numbers. Text is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

const LISTS = { pending: "All pending pods", plan: "All workflows", late: "All late requests" };

// Link from one document of a view to the list of them; nothing in the list itself.
export const back = (name, argument) => (argument && LISTS[name] ? el("p", {}, el("a", { href: `#${name}` }, LISTS[name])) : "");

const NONE = "–";
const known = (value) => value !== null && value !== undefined;

const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export const percent = (ratio, digits = 1) => (known(ratio) ? `${fixed(100 * ratio, digits)} %` : NONE);

export const ms = (value) =>
  known(value) ? `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 })} ms` : NONE;

export const decimal = (value, digits = 2) => (known(value) ? fixed(value, digits) : NONE);

export const dollars = (value) => (known(value) ? `$${value.toPrecision(3)}` : NONE);

export const gib = (mib) => `${(mib / 1024).toFixed(1)} GiB`;

export function facts(pairs, name = "facts") {
  const list = pairs.map(([term, value]) =>
    name === "facts" ? [el("dt", {}, term), el("dd", {}, value)] : el("div", {}, el("dt", {}, term), el("dd", {}, value)),
  );
  return el("dl", { class: name }, ...list.flat());
}

// A table whose first column heads its rows; a column is [title, text of a row, class of text].
export function table(caption, columns, rows) {
  const head = columns.map(([title, , kind]) => el("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    el("tr", {}, ...columns.map(([, cell, kind], index) =>
      el(index ? "td" : "th", { class: kind, scope: index ? null : "row" }, cell(row)))),
  );
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { class: columns.length < 3 ? "narrow" : null }, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
}
