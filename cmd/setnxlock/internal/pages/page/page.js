"use strict";
(() => {
const T = JSON.parse(document.getElementById("trace").textContent);
const $ = id => document.getElementById(id);
const { el, secs, said, believes, ttl, keyText, stored } = Lanes, clients = T.clients.map(c => c.name);

// path is what is shown: path[0] the start, then a state after each step.
const path = Lanes.path(T);
let now = 0;
// What is to be solved is not shown before it is asked for: of the trace only the steps up to seen.
let seen = T.objective && T.verdict.violated ? 0 : path.length;
const hidden = n => n > seen;

function draw() {
  const d = $("diagram");
  d.style.setProperty("--k", clients.length);
  d.setAttribute("role", "list");
  d.replaceChildren(Lanes.head(T), ...path.map((e, n) => {
    const link = el("a", "", String(n));
    link.href = "#" + n;
    link.tabIndex = -1;
    const row = Lanes.row(T, e, path[n - 1], link);
    row.addEventListener("click", ev => { ev.preventDefault(); go(n); });
    return row;
  }));
}

// cell is a table's; a change is marked, and what was before stands beside it.
function cell(is, was) {
  const td = el("td", "", is === "" ? "–" : is);
  if (was !== undefined && was !== is) {
    td.className = "changed";
    td.append(el("s", "", was === "" ? "–" : was));
  }
  return td;
}
function since(n, c) {
  const state = path[n].belief[c].state;
  while (n > 1 && path[n - 1].belief[c].state === state) n--;
  return path[n].at_ms;
}

function go(n) {
  now = Math.max(0, Math.min(n, path.length - 1));
  seen = Math.max(seen, now);
  const e = path[now], was = path[now - 1], last = path.length - 1;
  [...$("diagram").children].forEach((row, i) => {
    row.classList.toggle("now", i - 1 === now);
    row.classList.toggle("later", i - 1 > now);
    row.classList.toggle("veiled", hidden(i - 1));
    if (i - 1 === now) {
      row.setAttribute("aria-current", "step");
      if (innerWidth > 896) row.scrollIntoView({ block: "nearest" });
    } else row.removeAttribute("aria-current");
  });
  for (const part of $("picture").querySelectorAll("[data-n]")) {
    part.classList.toggle("later", +part.dataset.n > now);
    part.classList.toggle("veiled", hidden(+part.dataset.n));
  }
  const no = $("picture").querySelector(`[data-n="${now}"] .no`);
  if (no) $("picture").scrollLeft = no.getAttribute("x") - $("picture").clientWidth * .7;
  $("veil").hidden = !hidden(last);
  if (!hidden(last) && $("solution") && now === last) $("solution").open = true;
  $("count").textContent = `step ${now} of ${last}`;
  $("back").disabled = now === 0;
  $("next").disabled = now === last;
  $("bad").disabled = !path.some(e => e.violation);
  $("did").textContent = now ? (clients.includes(e.who) ? e.who + ": " : "") + said(e) : "The start";
  $("why").textContent = e.why || "";
  const broken = path.slice(0, now + 1).filter(e => e.violation);
  $("invariant").className = broken.length ? "broken" : "";
  $("invariant").textContent = broken.length
    ? broken.map(e => `✗ VIOLATION ${e.violation.invariant}, at step ${e.n}: ${e.violation.text}`).join("; ")
    : "✓ all invariants hold so far";

  const head = el("thead", "", el("tr", "", ...["", "its clock", "believes", "next"].map(s => el(s ? "th" : "td", "", s))));
  $("clients").replaceChildren(head, ...clients.map((c, i) => {
    const b = e.belief[c], w = was && was.belief[c];
    const tr = el("tr", "edge", el("th", "", c), cell(secs(b.now_ms)),
      cell(believes(b, since(now, c)), w && believes(w, since(now - 1, c))), el("td", "none", b.next || "–"));
    tr.style.setProperty("--hue", `var(--c${i % 4})`);
    return tr;
  }));
  const s = e.server, p = was && was.server, used = k => path.some(e => k(e.server));
  const one = s => !s.value ? "no key" : keyText(s) + (s.writer ? ", written by " + s.writer : "");
  const rows = T.start.each ? T.start.each.map((_, i) => ["S" + (i + 1), s => one((s.each || [])[i] || {})])
    : [["value", s => s.value ? s.value + (s.dead ? " (expired)" : "") : "no key"], ["ttl", ttl], ["written by", s => s.writer || "–"]];
  if (used(s => s.raw)) rows.push(["bytes", s => s.raw || "–"]);
  if (used(s => s.fence)) rows.push(["fence", s => String(s.fence || 0)]);
  if (used(s => s.watched && s.watched.length)) rows.push(["watched by", s => (s.watched || []).join(", ") || "–"]);
  if (used(s => s.storage)) rows.push(["storage", s => stored(s.storage)]);
  if (used(s => s.others && s.others.length)) rows.push(["other keys", s => (s.others || []).join("; ") || "–"]);
  $("server").replaceChildren(el("thead", "", el("tr", "", el("th", "", T.key), el("th", "", "at " + secs(e.at_ms) + " by the server’s clock"))),
    ...rows.map(([name, f]) => el("tr", "", el("th", "", name), cell(f(s), p && f(p)))));
  const hash = "#" + now;
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

// look shows the page as a slide or as a hand-out, or as it is.
function look(as) {
  const root = document.documentElement.classList;
  for (const name of ["slide", "handout"]) {
    root.toggle(name, name === as);
    $(name).setAttribute("aria-pressed", name === as);
  }
  if (as !== "handout" || $("blank").firstChild) return;
  $("blank").style.setProperty("--k", clients.length);
  $("blank").append(Lanes.head(T), ...Array.from({ length: Math.max(14, path.length + 2) }, (_, n) => {
    const row = el("div", "row", el("span", "n", String(n + 1)));
    for (let i = 0; i <= clients.length; i++) {
      const life = el("span", "life");
      life.style.gridColumn = i + 3;
      row.append(life);
    }
    return row;
  }));
}
const turned = as => look(document.documentElement.classList.contains(as) ? "" : as);

// game opens the workbench's board in the page: what it runs on is loaded only now.
function game(button) {
  if (!button) return;
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe");
    frame.title = "The race as a game";
    frame.src = button.dataset.src;
    const address = new URL(frame.src, location.href).href;
    $("game").replaceChildren(frame, el("p", "setting", "For slides of your own: ", el("code", "", `<iframe src='${address}' width='500' height='700'></iframe>`)));
    $("game").hidden = false;
    frame.scrollIntoView({ block: "nearest" });
  });
}

// read goes to the step that the address names: #7; or shows the page as a slide: #slide.
function read() {
  const as = /^#(slide|handout)$/.exec(location.hash);
  if (as) look(as[1]);
  const m = /^#(\d+)$/.exec(location.hash);
  go(m ? +m[1] : 0);
}

if ($("reveal")) $("reveal").addEventListener("click", () => { seen = path.length; go(now); });
const first = () => { const i = path.findIndex(e => e.violation); if (i > 0) go(i); };
const help = () => $("ask").setAttribute("aria-expanded", String(!($("help").hidden = !$("help").hidden)));
const keys = {
  "ArrowRight": 1, " ": 1, "Enter": 1, "l": 1, "j": 1, "ArrowLeft": -1, "Backspace": -1, "h": -1, "k": -1,
  "Home": () => go(0), "End": () => go(path.length - 1), "v": first, "?": help,
  "s": () => turned("slide"), "o": () => turned("handout"),
};
addEventListener("keydown", ev => {
  if (ev.ctrlKey || ev.altKey || ev.metaKey) return;
  if ((ev.key === " " || ev.key === "Enter") && ev.target.closest("button, a")) return;
  const k = keys[ev.key];
  if (!k) return;
  ev.preventDefault();
  typeof k === "number" ? go(now + k) : k();
});
// A button that was clicked does not keep the focus: space goes on stepping.
addEventListener("click", ev => { const b = ev.target.closest("button"); if (b && ev.detail) b.blur(); });
addEventListener("hashchange", read);
addEventListener("beforeprint", () => { if ($("solution")) $("solution").open = true; });
$("back").addEventListener("click", () => go(now - 1));
$("next").addEventListener("click", () => go(now + 1));
$("bad").addEventListener("click", first);
$("ask").addEventListener("click", help);
for (const as of ["slide", "handout"]) $(as).addEventListener("click", () => turned(as));
game($("play"));
game($("solve"));
if ($("copy")) {
  $("copy").hidden = false;
  $("copy").addEventListener("click", async () => {
    const r = document.createRange();
    r.selectNodeContents($("replay"));
    getSelection().removeAllRanges();
    getSelection().addRange(r);
    try { await navigator.clipboard.writeText(r.toString()); } catch { document.execCommand("copy"); }
    $("copy").textContent = "copied";
  });
}
$("app").hidden = false;
draw();
read();
})();
