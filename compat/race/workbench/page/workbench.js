'use strict'
// The page of the workbench. A state is a schedule, in the address; the explorer, in a
// Worker, says what stands there. A second Worker searches: to stop it is to end it.

const $ = id => document.getElementById(id)
const element = (name, text, attributes = {}) => {
  const e = document.createElement(name)
  if (text !== undefined) e.textContent = text
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v)
  return e
}
const seconds = ms => ms / 1000 + 's'

// A Worker's own script, after Go's: it compiles nothing, and answers one question at a time.
const work = `
onmessage = async e => {
  if (e.data.module) {
    const go = new Go()
    self.setnxlockReady = () => postMessage({ready: true})
    self.setnxlockProgress = p => postMessage({progress: JSON.parse(p)})
    go.run(await WebAssembly.instantiate(e.data.module, go.importObject))
    return
  }
  try { postMessage({id: e.data.id, ...JSON.parse(setnxlock(JSON.stringify(e.data.question)))}) }
  catch (err) { postMessage({id: e.data.id, error: 'the explorer has failed: ' + err}) }
}`

let engine // {module, script}

// load gets the explorer: a script, for a page from the disk may read nothing else.
async function load() {
  await new Promise((resolve, reject) => {
    const s = element('script', undefined, {src: 'workbench-engine.js'})
    s.onload = resolve
    s.onerror = () => reject(new Error('workbench-engine.js is not there: it stands beside this page'))
    document.head.append(s)
  })
  const packed = Uint8Array.from(atob(self.SETNXLOCK_WASM), c => c.charCodeAt(0))
  self.SETNXLOCK_WASM = ''
  const wasm = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip')))
  engine = {
    module: await WebAssembly.compile(await wasm.arrayBuffer()),
    script: URL.createObjectURL(new Blob([self.SETNXLOCK_EXEC, work], {type: 'text/javascript'})),
  }
}

// An Explorer is the engine in a Worker of its own.
class Explorer {
  constructor(progress = () => {}) {
    this.worker = new Worker(engine.script)
    this.waiting = new Map()
    this.asked = 0
    this.ready = new Promise((resolve, reject) => {
      this.worker.onerror = e => reject(new Error(e.message))
      this.worker.onmessage = ({data}) => {
        if (data.ready) return resolve()
        if (data.progress) return progress(data.progress)
        const {resolve: done, reject: failed} = this.waiting.get(data.id)
        this.waiting.delete(data.id)
        data.error ? failed(new Error(data.error)) : done(data.answer)
      }
    })
    this.worker.postMessage({module: engine.module})
  }
  async ask(question) {
    await this.ready
    return new Promise((resolve, reject) => {
      this.waiting.set(++this.asked, {resolve, reject})
      this.worker.postMessage({id: this.asked, question})
    })
  }
  end() { this.worker.terminate() }
}

let explorer, scout, searcher = null
let state = null    // of the schedule shown
let others = []     // what else can be done there; null: not known yet
let redone = []     // words that were undone, the last first
let level = null
let turn = 0        // counts the states shown: an answer to an older one is dropped

// A schedule is a head, a colon and words.
const headOf = schedule => schedule.split(' :')[0]
const wordsOf = schedule => { const i = schedule.indexOf(' :'); return i < 0 ? [] : schedule.slice(i + 2).split(' ').filter(Boolean) }
const join = (head, words) => [head, ':', ...words].join(' ')
const head = () => headOf(state.trace.schedule)
const words = () => wordsOf(state.trace.schedule)
const clean = address => { try { return decodeURIComponent(address.replace(/^#/, '')) } catch { return '' } }

// show goes to a schedule. The reader stays where he is if there is no such state.
async function show(schedule, {keep = false, silent = false} = {}) {
  const mine = ++turn
  let at
  try { at = await explorer.ask({do: 'at', schedule}) } catch (err) {
    if (mine === turn) $('said').textContent = 'Not possible: ' + err.message + '.'
    return false
  }
  if (mine !== turn) return false
  if (!keep) redone = []
  at.trace.events ??= [] // Go's empty lists are null
  at.steps ??= []
  state = at
  others = null
  level = LEVELS.find(l => l.head === head()) || null
  $('hinttext').textContent = ''
  const hash = '#' + encodeURIComponent(at.trace.schedule)
  if (!silent && hash !== location.hash) history.pushState(null, '', hash)
  draw()
  lookAround()
  return true
}

// lookAround finds out what else can be done here, in a Worker of its own: it takes many replays,
// and the next step must not wait for them. Of states that are left meanwhile nothing is asked.
let looking = false
async function lookAround() {
  if (looking) return
  looking = true
  while (others === null) {
    const mine = turn, more = await scout.ask({do: 'choices', schedule: state.trace.schedule})
    if (mine === turn) { others = more ?? []; drawOthers() }
  }
  looking = false
}

const last = () => state.trace.events[state.trace.events.length - 1]

function keyText(s) {
  if (!s.value) return 'is free'
  let text = '= ' + s.value + (s.ttl_ms >= 0 ? ', ttl ' + seconds(s.ttl_ms) : ', no ttl')
  if (s.dead) text += ', expired and still in memory'
  return text
}

function believes(b) {
  if (!b) return 'idle'
  if ((b.state === 'holds' || b.state === 'acts') && b.until_ms >= 0) return b.state + ' until ' + seconds(b.until_ms)
  return b.state
}

// sentence says a step to one who does not see the picture.
function sentence(e) {
  let text = 'Step ' + e.n + ', at ' + seconds(e.at_ms) + ': ' + (e.who === 'time' ? '' : e.who + ' ') + (e.cmd || e.note)
  if (e.lost) text += {reply: ', its reply is lost', request: ', it never arrives', late: ', it is still on its way', cut: ', the connection breaks'}[e.lost]
  else if (e.reply) text += ', answered ' + e.reply
  return text + '. ' + e.why
}

function draw() {
  const t = state.trace, e = last(), server = e ? e.server : t.start
  $('setting').textContent = t.algorithm + ' · ' + (/^\d/.test(t.server) ? 'Redis ' : '') + t.server + ' · key ' + t.key + ' · lease ' + seconds(t.ttl_ms)
  $('count').textContent = 'step ' + t.events.length
  $('said').textContent = e ? sentence(e) : 'Nothing has run yet.'
  $('picture').innerHTML = state.picture // the engine escapes what stands in it
  $('picture').scrollLeft = $('picture').scrollWidth
  enable('undo', t.events.length > 0)
  enable('redo', redone.length > 0)
  enable('reset', t.events.length > 0)
  $('replay').textContent = state.replay

  const buttons = state.steps.map(option)
  t.clients.forEach((c, i) => {
    const n = state.steps.findIndex(o => o.client === c.name)
    if (n < 0) return
    buttons[n].prepend(element('kbd', i + 1))
    buttons[n].style.setProperty('--hue', 'var(--c' + i + ')')
  })
  $('steps').replaceChildren(...buttons)
  if (!buttons.length) $('steps').append(element('p', 'No client can go on now.'))
  $('others').replaceChildren(element('p', '…'))

  const rows = [row('th', 'client', 'its clock', 'believes', 'sends next')]
  for (const c of t.clients) {
    const b = e && e.belief[c.name]
    rows.push(row('td', c.name + (c.runs ? ' (' + c.runs + ')' : ''), seconds(b ? b.now_ms : c.skew_ms), believes(b), b ? b.next || '' : ''))
  }
  $('beliefs').replaceChildren(...rows)
  $('truth').textContent = 'On the server, at ' + seconds(e ? e.at_ms : 0) + ': ' + t.key + ' ' + keyText(server) +
    (server.writer ? ', written by ' + server.writer : '') + (server.watched ? '; watched by ' + server.watched.join(', ') : '') +
    (server.others ? '; ' + server.others.join('; ') : '') + (server.storage && server.storage.writer ? '; the storage was last written by ' + server.storage.writer : '')

  const steps = [row('th', '#', 'time', 'who', 'what', 'key', 'why')]
  for (const e of t.events) {
    const r = row('td', e.n, seconds(e.at_ms), e.who, (e.cmd || e.note) + (e.lost ? ' ⇢ ' + e.lost + ' lost' : e.reply ? ' → ' + e.reply : ''), keyText(e.server), e.why)
    r.lastChild.className = 'why'
    if (e.violation) r.className = 'broken'
    steps.push(r)
  }
  $('table').replaceChildren(...steps)
  drawViolation()
  drawLevel()
}

function enable(id, on) { $(id).disabled = !on }

function row(cell, ...texts) {
  const r = element('tr')
  for (const text of texts) r.append(element(cell, text, cell === 'th' ? {scope: 'col'} : {}))
  return r
}

// option is a choice as a button: what is sent, and what it does to the key.
function option(o) {
  const b = element('button', undefined, {'data-word': o.word})
  const what = o.cmd && o.says ? o.says + ': ' + o.cmd : (o.client && !o.says.startsWith(o.client) ? o.client + ' ' : '') + (o.cmd || o.says)
  b.append(' ' + what + (o.reply && !o.says.includes('lost') ? ' → ' + o.reply : ''), element('small', 'then the key ' + keyText(o.key)))
  b.onclick = () => choose(o.word)
  return b
}

function drawOthers() { $('others').replaceChildren(...others.map(option)) }

function drawViolation() {
  const v = state.trace.verdict, box = $('violation')
  box.replaceChildren()
  $('after').hidden = true
  if (!v.violated) return
  const a = state.trace.argument, e = state.trace.events[v.step - 1]
  const says = element('p')
  says.append(element('b', 'Broken: ' + v.violated), ' at step ' + v.step + ': ' + e.violation.text + '.')
  box.append(says)
  for (const [label, list] of [['Let', a.let], ['Then', a.then], ['So', a.so && [a.so]]]) {
    for (const text of list || []) box.append(element('p', label + ' ' + text))
  }
  if (level) return drawSolved(v)
  const help = element('button', 'What would help?')
  const answer = element('p', '', {role: 'status'})
  help.onclick = async () => {
    const schedule = state.trace.schedule
    try { answer.textContent = await search({do: 'remedy', schedule}) } catch (err) { answer.textContent = err.message }
  }
  box.append(help, answer)
}

// Levels.

const progress = () => { try { return JSON.parse(localStorage.getItem('setnxlock-levels') || '{}') } catch { return {} } }

function drawLevels() {
  const done = progress()
  $('levellist').replaceChildren(...LEVELS.map(l => {
    const li = element('li'), b = element('button', l.title)
    b.onclick = () => begin(l)
    li.append(b, done[l.name] ? ' ✓ in ' + done[l.name] + ' steps' : '')
    return li
  }))
}

async function begin(l) {
  $('levels').open = false
  await show(join(l.head, []))
  $('level').scrollIntoView({block: 'start'})
}

function drawLevel() {
  $('level').hidden = !level
  if (!level) return
  $('leveltitle').textContent = 'Level ' + (LEVELS.indexOf(level) + 1) + ': ' + level.title
  $('objective').textContent = level.objective
  $('leveltext').textContent = level.text
}

// drawSolved is what is told afterwards: the shortest, the fix, the lock that survives.
function drawSolved(v) {
  const done = progress()
  const before = done[level.name] || Infinity
  if (v.step < before) {
    done[level.name] = v.step
    try { localStorage.setItem('setnxlock-levels', JSON.stringify(done)) } catch { /* nothing is kept then */ }
    drawLevels()
  }
  const box = $('after')
  box.hidden = false
  const way = distance(level.graph, 0)
  const best = way === null ? '' : level.graph.cut ? ' It can be done in ' + way + '.' : way < v.step ? ' The shortest way with these steps has ' + way + '.' : ' There is no shorter way with these steps.'
  box.replaceChildren(element('h2', 'Solved, in ' + v.step + ' steps.' + best), element('p', level.fix))
  if (level.survives) {
    const b = element('button', 'The same race on ' + level.survives.algorithm + ', which survives it')
    b.onclick = () => survivor(level)
    box.append(b)
  }
  const next = LEVELS[LEVELS.indexOf(level) + 1]
  if (next) {
    const b = element('button', 'Next: ' + next.title)
    b.onclick = () => begin(next)
    box.append(' ', b)
  }
}

async function survivor(of) {
  const broke = state.trace.events
  if (!await show(of.survives.schedule)) return
  const is = state.trace.events
  let n = 0
  while (n < is.length && n < broke.length && is[n].who === broke[n].who && is[n].cmd === broke[n].cmd && is[n].reply === broke[n].reply) n++
  $('said').textContent = of.survives.algorithm + ' survives. ' + (n < is.length ? 'They part at step ' + (n + 1) + '. ' + sentence(is[n]) : '')
}

// distance is how many choices away the objective is from a state of a graph; null: nowhere.
function distance(graph, from) {
  let ring = [from], seen = new Set(ring)
  for (let n = 0; ring.length; n++) {
    if (ring.some(s => graph.states[s].broken)) return n
    const next = []
    for (const s of ring) for (const to of Object.values(graph.states[s].to)) if (!seen.has(to)) { seen.add(to); next.push(to) }
    ring = next
  }
  return null
}

// hint is exact for the steps that the level offers, which were all run when the page was made.
function hint() {
  if (!level) return
  const graph = level.graph, path = [0]
  for (const w of words()) {
    const to = graph.states[path[path.length - 1]].to[w]
    if (to === undefined) break
    path.push(to)
  }
  const off = words().length + 1 - path.length // words that the level has not
  const say = text => { $('hinttext').textContent = text }
  const plural = n => n + (n === 1 ? ' step' : ' steps')
  for (let back = 0; back < path.length; back++) {
    const n = distance(graph, path[path.length - 1 - back])
    if (n === null) continue
    if (n === 0) return say('You are there.')
    if (off + back === 0) return say(level.goal + ' is ' + plural(n) + ' away' + (graph.cut ? ', at the most.' : '.'))
    if (off) return say('The steps of this level do not lead here: undo ' + (off + back) + ', then it is ' + plural(n) + ' away.')
    return say((graph.cut ? 'No way from here was found' : level.goal + ' is not reachable from here') + ': undo ' + back + ', then it is ' + plural(n) + ' away.')
  }
  say('No way is known.')
}

// Moves.

const choose = word => show(join(head(), [...words(), word]))

async function undo() {
  const w = words()
  if (!w.length) return
  const undone = [w[w.length - 1], ...redone]
  if (await show(join(head(), w.slice(0, -1)), {keep: true})) { redone = undone; enable('redo', true) }
}

async function redo() {
  if (!redone.length) return
  const left = redone.slice(1)
  if (await show(join(head(), [...words(), redone[0]]), {keep: true})) { redone = left; enable('redo', left.length > 0) }
}

const reset = () => show(join(head(), []))

// The search.

function faults() {
  const f = {}
  for (const i of document.querySelectorAll('[data-fault]')) f[i.dataset.fault] = i.type === 'checkbox' ? i.checked : Number(i.value)
  return f
}

// search asks a Worker of its own, until it has answered or is stopped.
async function search(question) {
  stop()
  const began = Date.now(), s = new Explorer(p => {
    $('progress').textContent = p.states.toLocaleString('en') + ' states, ' + p.seconds.toFixed(1) + ' s, depth ' + p.depth
  })
  searcher = s
  enable('stop', true)
  const tick = setInterval(() => { if (!$('progress').textContent.includes('states')) $('progress').textContent = 'searching for ' + Math.round((Date.now() - began) / 1000) + ' s' }, 500)
  $('progress').textContent = 'searching'
  try {
    return await Promise.race([s.ask(question), new Promise((_, reject) => { s.stopped = reject })])
  } finally {
    clearInterval(tick)
    s.end()
    if (searcher === s) { searcher = null; enable('stop', false) }
  }
}

function stop() {
  if (!searcher) return
  searcher.stopped(new Error('Stopped: this proves nothing.'))
}

async function explore(leads) {
  const schedule = join(head(), [])
  let r
  try { r = await search({do: 'explore', schedule, faults: faults(), ticks: Number($('ticks').value), states: 5_000_000}) } catch (err) {
    $('progress').textContent = err.message
    return
  }
  const counts = r.states.toLocaleString('en') + ' states, ' + r.seconds.toFixed(1) + ' s. '
  const who = headOf(schedule).split(' ').slice(0, 2).join(' on Redis ')
  if (r.verdict === 'holds') { $('progress').textContent = counts + 'Nothing breaks within these bounds: ' + who + ', ' + r.bounds + '. Beyond them this says nothing.'; return }
  if (r.verdict === 'bound') { $('progress').textContent = counts + 'Nothing broke before there was no room for more ' + r.bound + ': this proves nothing.'; return }
  $('progress').textContent = counts + 'No: ' + who + ' breaks ' + r.violated + ' in ' + r.steps + ' steps at the least, within ' + r.bounds + '.'
  if (leads) await show(r.schedule)
  else {
    const b = element('button', 'show them')
    b.type = 'button'
    b.onclick = () => show(r.schedule)
    $('progress').append(' ', b)
  }
}

// The page.

function choices(table) {
  const groups = [element('optgroup', undefined, {label: "this library's"}), element('optgroup', undefined, {label: 'there to be broken'})]
  for (const l of table.locks) groups[l.shipped ? 0 : 1].append(element('option', l.name))
  $('lock').replaceChildren(...groups)
  $('lock').value = 'getset:classic'
  $('server').replaceChildren(...table.servers.map(s => element('option', s)))
  $('server').value = '2.4'
  const says = () => { $('says').textContent = table.locks.find(l => l.name === $('lock').value).says }
  $('lock').onchange = says
  says()
}

function bind() {
  $('free').onsubmit = e => {
    e.preventDefault()
    $('setup').open = false
    show([$('lock').value, $('server').value, $('clients').value + 'x' + $('attempts').value, ':'].join(' '))
  }
  $('search').onsubmit = e => { e.preventDefault(); explore(true) }
  $('safe').onclick = () => explore(false)
  $('stop').onclick = stop
  $('undo').onclick = undo
  $('redo').onclick = redo
  $('reset').onclick = reset
  $('hint').onclick = hint
  $('keys').onclick = () => { $('help').hidden = !$('help').hidden; $('keys').setAttribute('aria-expanded', !$('help').hidden) }
  $('go').onclick = () => show($('paste').value.replace(/^\s*setnxlock race replay\s+/, '').replace(/^'(.*)'\s*$/, '$1'))
  $('copy').onclick = () => navigator.clipboard?.writeText(state.replay).then(() => { $('copy').textContent = 'copied' }, () => getSelection().selectAllChildren($('replay')))
  $('svg').onclick = () => {
    const svg = $('picture').querySelector('svg').cloneNode(true)
    svg.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
    const style = element('style', [...document.styleSheets[0].cssRules].map(r => r.cssText).filter(r => r.startsWith('.picture') || r.startsWith(':root')).join('\n'))
    svg.prepend(style)
    const a = element('a', '', {download: 'race.svg', href: URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], {type: 'image/svg+xml'}))})
    a.click()
    URL.revokeObjectURL(a.href)
  }
  const keys = {
    u: undo, y: redo, 0: reset, h: hint, f: () => explore(true), s: () => explore(false), Escape: stop, '?': () => $('keys').click(),
    t: () => { const o = (others || []).find(o => o.word[0] === '+'); if (o) choose(o.word) },
  }
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.key !== 'Escape') return
    const step = state.steps.find(o => o.word === 'C' + e.key)
    const act = step ? () => choose(step.word) : keys[e.key]
    if (!act) return
    e.preventDefault()
    act()
  })
  addEventListener('popstate', () => { const s = clean(location.hash); if (s && s !== state.trace.schedule) show(s, {silent: true}) })
}

async function main() {
  try {
    await load()
    explorer = new Explorer()
    scout = new Explorer()
    choices(await explorer.ask({do: 'table'}))
  } catch (err) {
    $('loadingtext').textContent = 'The explorer does not start: ' + err.message
    $('bar').remove()
    return
  }
  drawLevels()
  const wanted = clean(location.hash)
  const first = 'getset:classic 2.4 2x3 :'
  if (!await show(wanted || first, {silent: !wanted})) {
    const why = $('said').textContent
    await show(first)
    $('said').textContent = 'The address leads nowhere. ' + why
  }
  bind()
  $('loading').hidden = true
  $('app').hidden = false
  $('picture').scrollLeft = $('picture').scrollWidth
}
main()
