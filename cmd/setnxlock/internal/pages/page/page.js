"use strict";
(() => {
const T = JSON.parse(document.getElementById("trace").textContent);
const $ = id => document.getElementById(id);
const clients = T.clients.map(c => c.name), hue = name => {
  const i = clients.indexOf(name);
  return i < 0 ? "var(--soft)" : `var(--c${i % 4})`;
};

// el makes an element. Whatever comes from the trace becomes text, never markup.
function el(tag, cls, ...kids) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  e.append(...kids.filter(k => k !== null && k !== undefined && k !== ""));
  return e;
}

// The words of a step: timeline.go has the same ones.
const secs = ms => ms / 1000 + "s";
function said(e) {
  if (!e.cmd) return e.note || "";
  let s = e.cmd;
  if (e.lost === "reply") s += " ⇢ reply lost";
  else if (e.lost === "request") s += " ⇢ never arrived";
  else if (e.lost === "late") s += " ⇢ on its way";
  else if (e.reply) s += " → " + e.reply;
  if (e.lost === "cut") s += " ⇢ cut";
  return e.note ? s + " (" + e.note + ")" : s;
}
const over = b => b.until_ms >= 0 && b.now_ms >= b.until_ms;
function believes(b, since) {
  const until = (s, word) => b.until_ms < 0 ? s : s + word + secs(b.until_ms);
  const lease = () => over(b) ? ", its lease ended at " : ", lease until ";
  const s = {
    "holds": () => until("holds", " until "),
    "holds but run out": () => until("holds, but it ran out", " at "),
    "paused": () => until("paused since " + secs(since), lease()),
    "acts": () => until("acts", lease()),
    "unknown": () => "unknown since " + secs(since),
    "lost": () => "lost, and it knows",
  }[b.state];
  return (s ? s() : b.state) + (b.fence ? ", fence " + b.fence : "");
}
const ttl = s => !s.value ? "–" : s.ttl_ms < 0 ? "none" : secs(s.ttl_ms);
function keyText(s) {
  if (!s.value) return "-";
  return s.value + (s.ttl_ms >= 0 ? " ttl " + secs(s.ttl_ms) : "") + (s.dead ? " (expired)" : "");
}
const watched = s => s.watched && s.watched.length ? "watched by " + s.watched.join(", ") : "not watched";
const stored = s => !s || !s.writer ? "nothing written" : s.writer + (s.fence ? ", fence " + s.fence : "");
function changes(was, is) {
  const out = [], wo = was.others || [], io = is.others || [], name = o => o.split(" = ")[0];
  if ((was.fence || 0) !== (is.fence || 0)) out.push("fence " + (is.fence || 0));
  if (watched(was) !== watched(is)) out.push(watched(is));
  if (is.storage && stored(was.storage) !== stored(is.storage)) out.push("storage: " + stored(is.storage));
  for (const o of io) if (!wo.includes(o)) out.push(o);
  for (const o of wo) if (!io.some(p => name(p) === name(o))) out.push(name(o) + " gone");
  return out;
}

// path is what is shown: path[0] the start, then a state after each step.
const start = { n: 0, at_ms: 0, who: "", why: T.objective ? "Objective: " + T.objective : "Before the first step.", server: T.start, belief: {} };
for (const c of T.clients) {
  const first = T.events.find(e => e.who === c.name);
  start.belief[c.name] = { state: "idle", until_ms: -1, now_ms: c.skew_ms, next: first && first.cmd };
}
const path = [start, ...T.events];
let now = 0;
// What is to be solved is not shown before it is asked for: of the trace only the steps up to seen.
let seen = T.objective && T.verdict.violated ? 0 : path.length;
const hidden = n => n > seen;

const kind = b => (kinds[b.state] || "") + (over(b) && b.state !== "holds but run out" && kinds[b.state] ? " over" : "");
const kinds = { "holds": "holds", "holds but run out": "out", "paused": "paused", "acts": "acts", "unknown": "unknown", "dead": "dead" };
function draw() {
  const d = $("diagram"), k = clients.length, rows = [];
  d.style.setProperty("--k", k);
  d.setAttribute("role", "list");
  const place = (e, col, i) => {
    e.style.gridColumn = col;
    if (i !== undefined) { e.style.setProperty("--i", i); e.style.setProperty("--hue", `var(--c${i % 4})`); }
    return e;
  };
  const head = el("div", "row head", el("span", "n", "#"), el("span", "at", "time"));
  clients.forEach((c, i) => head.append(place(el("span", "say", c), i + 3, i)));
  head.append(place(el("span", "val", T.key), k + 3));
  rows.push(head);
  path.forEach((e, n) => {
    const who = clients.indexOf(e.who), was = path[n - 1], link = el("a", "", String(n));
    link.href = "#" + n;
    link.tabIndex = -1;
    const row = el("div", "row", el("span", "n", link), el("span", "at", secs(e.at_ms)));
    row.setAttribute("role", "listitem");
    clients.forEach((c, i) => {
      const b = e.belief[c], life = place(el("span", "life " + kind(b)), i + 3, i);
      const turned = !was || was.belief[c].state !== b.state;
      if (b.state === "acts" || b.state === "dead" && turned) life.append(el("b", "sign", b.state === "acts" ? "!" : "✕"));
      row.append(life);
    });
    const truth = place(el("span", "life truthline " + (e.server.value ? e.server.dead ? "gone" : "truth" : "")), k + 3);
    truth.style.setProperty("--hue", hue(e.server.writer));
    row.append(truth);
    if (who >= 0) {
      const name = el("span", "who", e.who + " ");
      row.append(place(el("span", "say", name, said(e)), who + 3, who));
      if (e.cmd) {
        const lost = e.lost ? " lost " + (e.lost === "late" ? "request" : e.lost) : "", x = () => el("b", "x", "✗");
        const left = e.lost === "reply" || e.lost === "cut" ? x() : el("b", "", e.lost ? "" : "◂");
        row.classList.add("net");
        row.append(place(el("span", "wire" + lost, left, e.lost === "request" || e.lost === "late" ? x() : el("b", "", "▸")), `${who + 3} / ${k + 3}`));
      }
    } else {
      row.classList.add("all");
      row.append(place(el("span", "say", n ? "— " + said(e) : "the start"), `3 / ${k + 3}`));
    }
    const extra = was ? changes(was.server, e.server) : [], text = keyText(e.server);
    const moved = was && keyText(was.server) !== text;
    const val = place(el("span", "val " + (moved || extra.length ? "new" : "same"), el(moved ? "b" : "i", "", text), ...extra.map(s => el("span", "", s))), k + 3);
    val.firstChild.style.fontStyle = "normal";
    row.append(val);
    if (e.violation) {
      row.classList.add("broken");
      row.append(el("span", "note", `✗ VIOLATION ${e.violation.invariant}: ${e.violation.text}`));
    }
    if (n) row.append(el("span", "why", e.why || ""));
    row.addEventListener("click", ev => { ev.preventDefault(); go(n); });
    rows.push(row);
  });
  d.replaceChildren(...rows);
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

// read goes to the step that the address names: #7.
function read() {
  const m = /^#(\d+)$/.exec(location.hash);
  go(m ? +m[1] : 0);
}

if ($("reveal")) $("reveal").addEventListener("click", () => { seen = path.length; go(now); });
const first = () => { const i = path.findIndex(e => e.violation); if (i > 0) go(i); };
const help = () => $("ask").setAttribute("aria-expanded", String(!($("help").hidden = !$("help").hidden)));
const keys = {
  "ArrowRight": 1, " ": 1, "Enter": 1, "l": 1, "j": 1, "ArrowLeft": -1, "Backspace": -1, "h": -1, "k": -1,
  "Home": () => go(0), "End": () => go(path.length - 1), "v": first, "?": help,
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
