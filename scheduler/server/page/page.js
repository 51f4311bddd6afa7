// The page: reads the documents of the view that the address names, and draws it again every few seconds.

import { back, el } from "./dom.js";
import { views } from "./views.js";

const PERIOD_MS = 5000;
const main = document.getElementById("view");
const state = document.getElementById("state");
let timer = 0;
let drawn = "";
let data = null;
let answered = ""; // time of the figures that are drawn

function address() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return views[name] ? [name, decodeURIComponent(rest.join("/"))] : ["overview", ""];
}

async function read(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store" }).catch(() => {
    throw new Error("Nothing answers at this address: the gateway stopped, or a forwarded port was closed. Start it, or forward the port again; this page goes on by itself.");
  });
  if (!answer.ok) {
    const text = await answer.text();
    let detail = text;
    try { detail = JSON.parse(text).detail; } catch { /* a proxy's own text */ }
    throw Object.assign(new Error(answer.status === 404 ? detail : `${path}: ${answer.status} ${detail}`),
      { title: answer.status === 404 ? "Not available" : "No answer" });
  }
  return answer.json();
}

function draw() {
  const [name, argument] = address();
  const key = document.activeElement?.dataset?.key;
  const caret = document.activeElement?.selectionStart;
  main.replaceChildren(...views[name].draw(data, argument, draw).filter(Boolean));
  const focused = key && main.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (focused) {
    focused.focus();
    if (caret !== undefined && caret !== null && focused.setSelectionRange) focused.setSelectionRange(caret, caret);
  }
}

async function update() {
  clearTimeout(timer);
  const hash = location.hash;
  const [name, argument] = address();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const documents = Object.entries(views[name].documents(argument));
    const answers = await Promise.all(documents.map(([, path]) => read(path)));
    if (hash !== location.hash) return;
    data = Object.fromEntries(documents.map(([key], index) => [key, answers[index]]));
    draw();
    document.title = `${main.querySelector("h2").textContent} – esg-scheduler`;
    answered = new Date().toLocaleTimeString("en-GB");
    state.textContent = `as of ${answered}`;
    state.className = "";
    if (drawn && drawn !== hash) main.focus();
    drawn = hash || "#overview";
  } catch (error) {
    if (hash !== location.hash) return;
    const title = error.title ?? "No answer";
    state.textContent = title.toLowerCase();
    state.className = "bad";
    if (drawn !== (hash || "#overview")) {
      main.replaceChildren(el("h2", {}, title), back(name, argument), el("p", { class: "warn" }, error.message));
    } else {
      document.getElementById("stale")?.remove();
      main.prepend(el("p", { class: "warn", id: "stale" }, `${title}: the figures below are of ${answered}. ${error.message}`));
    }
  }
  document.documentElement.dataset.view = name; // a view is complete: for tests
  if (!document.hidden) timer = setTimeout(update, PERIOD_MS);
}

window.addEventListener("hashchange", update);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : update()));
update();
