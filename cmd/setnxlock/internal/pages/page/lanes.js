"use strict";
// Lanes draws a trace as lanes: a column for each client, one for the key, a row for each step. The page of a race and the workbench have it.
const Lanes = (() => {
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

const kind = b => (kinds[b.state] || "") + (over(b) && b.state !== "holds but run out" && kinds[b.state] ? " over" : "");
const kinds = { "holds": "holds", "holds but run out": "out", "paused": "paused", "acts": "acts", "unknown": "unknown", "dead": "dead" };

// hue is a client's colour.
function hue(trace, name) {
  const i = trace.clients.findIndex(c => c.name === name);
  return i < 0 ? "var(--soft)" : `var(--c${i % 4})`;
}

// path is the trace's states: the one before its first step, and one after each.
function path(trace) {
  const start = { n: 0, at_ms: 0, who: "", why: trace.objective ? "Objective: " + trace.objective : "Before the first step.", server: trace.start, belief: {} };
  for (const c of trace.clients) {
    const first = trace.events.find(e => e.who === c.name);
    start.belief[c.name] = { state: "idle", until_ms: -1, now_ms: c.skew_ms, next: first && first.cmd };
  }
  return [start, ...trace.events];
}

const place = (e, col, i) => {
  e.style.gridColumn = col;
  if (i !== undefined) { e.style.setProperty("--i", i); e.style.setProperty("--hue", `var(--c${i % 4})`); }
  return e;
};

// head is the row of names.
function head(trace) {
  const row = el("div", "row head", el("span", "n", "#"), el("span", "at", "time"));
  trace.clients.forEach((c, i) => row.append(place(el("span", "say", c.name), i + 3, i)));
  row.append(place(el("span", "val", trace.key), trace.clients.length + 3));
  return row;
}

// row is the state after a step: what was said, what each believes, what the key holds. link is what stands as its number.
function row(trace, e, was, link) {
  const clients = trace.clients.map(c => c.name), k = clients.length, who = clients.indexOf(e.who);
  const r = el("div", "row", el("span", "n", link), el("span", "at", secs(e.at_ms)));
  r.setAttribute("role", "listitem");
  clients.forEach((c, i) => {
    const b = e.belief[c], life = place(el("span", "life " + kind(b)), i + 3, i);
    const turned = !was || was.belief[c].state !== b.state;
    if (b.state === "acts" || b.state === "dead" && turned) life.append(el("b", "sign", b.state === "acts" ? "!" : "✕"));
    r.append(life);
  });
  const truth = place(el("span", "life truthline " + (e.server.value ? e.server.dead ? "gone" : "truth" : "")), k + 3);
  truth.style.setProperty("--hue", hue(trace, e.server.writer));
  r.append(truth);
  if (who >= 0) {
    const name = el("span", "who", e.who + " ");
    r.append(place(el("span", "say", name, said(e)), who + 3, who));
    if (e.cmd) {
      const lost = e.lost ? " lost " + (e.lost === "late" ? "request" : e.lost) : "", x = () => el("b", "x", "✗");
      const left = e.lost === "reply" || e.lost === "cut" ? x() : el("b", "", e.lost ? "" : "◂");
      r.classList.add("net");
      r.append(place(el("span", "wire" + lost, left, e.lost === "request" || e.lost === "late" ? x() : el("b", "", "▸")), `${who + 3} / ${k + 3}`));
    }
  } else {
    r.classList.add("all");
    r.append(place(el("span", "say", e.n ? "— " + said(e) : "the start"), `3 / ${k + 3}`));
  }
  const extra = was ? changes(was.server, e.server) : [], text = keyText(e.server);
  const moved = was && keyText(was.server) !== text;
  const val = place(el("span", "val " + (moved || extra.length ? "new" : "same"), el(moved ? "b" : "i", "", text), ...extra.map(s => el("span", "", s))), k + 3);
  val.firstChild.style.fontStyle = "normal";
  r.append(val);
  if (e.violation) {
    r.classList.add("broken");
    r.append(el("span", "note", `✗ VIOLATION ${e.violation.invariant}: ${e.violation.text}`));
  }
  if (e.n) r.append(el("span", "why", e.why || ""));
  return r;
}

return { el, secs, said, over, believes, ttl, keyText, watched, stored, changes, hue, path, head, row };
})();
