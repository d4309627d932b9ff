'use strict'
// The page of the workbench. A state is a schedule, in the address; the explorer, in a
// Worker, says what stands there. A second Worker searches: to stop it is to end it.

const $ = id => document.getElementById(id)
const LEVELS = JSON.parse($('leveldata').textContent)
const element = (name, text, attributes = {}) => {
  const e = document.createElement(name)
  if (text !== undefined) e.textContent = text
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v)
  return e
}
const upper = s => s[0].toUpperCase() + s.slice(1)
const counted = n => n + (n === 1 ? ' step' : ' steps')
// nameOf names the locks of a run, each once; one of the reader's own without its lines.
const nameOf = locks => [...new Set(locks.split('+'))].map(l => l.startsWith('form/') ? 'a lock of your own' : l).join(' + ')
const seconds = ms => ms / 1000 + 's'
// unbroken is code whose words are not torn behind a hyphen, as those of pages.Words.
const unbroken = code => code.split(/(\s+)/).map(w => /^\s|^[\p{L}\d]*$/u.test(w) || w.length > 36 ? w : element('span', w, {class: 'word'}))

// gunzip is a response of what was packed, seven bits to a character: the page may fetch no file.
const gunzip = packed => {
  const bytes = new Uint8Array(packed.length * 7 >> 3)
  let bits = 0, have = 0, n = 0
  for (let i = 0; i < packed.length; i++) {
    bits = bits << 7 | packed.charCodeAt(i) & 127
    have += 7
    if (have >= 8) bytes[n++] = bits >> (have -= 8)
  }
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')))
}

// A Worker's own script, after Go's: it answers one question at a time. The first compiles the module for the others.
const work = `
onmessage = async e => {
  if (e.data.packed) {
    try {
      const module = gunzip(e.data.packed)
      postMessage({module: await WebAssembly.compile(await module.arrayBuffer())})
    } catch (err) { postMessage({failed: String(err)}) }
    return
  }
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
const CODE = {} // lines, by file

// load gets the explorer: a script, for a page from the disk may read nothing else.
async function load() {
  await new Promise((resolve, reject) => {
    const s = element('script', undefined, {src: 'workbench-engine.js'})
    s.onload = resolve
    s.onerror = () => reject(new Error('workbench-engine.js is not there: it stands beside this page'))
    document.head.append(s)
  })
  const code = gunzip(self.SETNXLOCK_CODE)
  for (const [file, text] of Object.entries(await code.json())) CODE[file] = text.split('\n')
  const script = URL.createObjectURL(new Blob([self.SETNXLOCK_EXEC, 'const gunzip = ' + gunzip, work], {type: 'text/javascript'}))
  const compiler = new Worker(script)
  const module = await new Promise((resolve, reject) => {
    compiler.onerror = e => reject(new Error(e.message))
    compiler.onmessage = ({data}) => data.module ? resolve(data.module) : reject(new Error(data.failed))
    compiler.postMessage({packed: self.SETNXLOCK_WASM})
    self.SETNXLOCK_WASM = ''
  })
  compiler.terminate()
  engine = {module, script}
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
let second = ''     // the lock in grey that was chosen
let others = []     // what else can be done there; null: not known yet
let redone = []     // words that were undone, the last first
let level = null
let byHand = false  // the reader has made the last step, and no search had shown it
let led = ''        // the schedule that a search has led to
let compared = ''   // the schedule that the survivors were asked for
let keys = {}       // what each does, by its name
let turn = 0        // counts the states shown: what was looked up for an older one is dropped

// A schedule is a head, a colon and words.
const headOf = schedule => schedule.split(' :')[0]
const wordsOf = schedule => { const i = schedule.indexOf(' :'); return i < 0 ? [] : schedule.slice(i + 2).split(' ').filter(Boolean) }
const join = (head, words) => [head, ':', ...words].join(' ')
const head = () => headOf(state.trace.schedule)
const words = () => wordsOf(state.trace.schedule)
// An address is a schedule, after what the page is to be: #embed= has the board alone, #exercise= its exercise, too.
// A race's name there says which it is of those that begin alike.
const WHOLE = /^#?(?:((?:(?:embed|exercise|\w+\/[\w.-]+),?)+)=)?/
const modes = (WHOLE.exec(location.hash)[1] ?? '').split(',')
let named = modes.find(m => m.includes('/'))
const embedded = modes.includes('embed')
let exercising = modes.includes('exercise')
const clean = address => { try { return decodeURIComponent(address.replace(WHOLE, '')) } catch { return '' } }

// Moves wait in a queue: each is made where the one before it has led, however fast they are typed. What is on the
// screen is drawn when none is left.
let tail = Promise.resolve(), queued = 0
let stale = false   // the state is not yet on the screen
let trouble = ''    // why a move was not possible
function queue(move) {
  queued++
  const made = tail.then(move)
  tail = made.catch(err => { trouble = err.message }).then(settle).catch(reportError) // the next move must not wait for ever
  return tail.then(() => made).catch(() => false)
}

function settle() {
  if (--queued) return
  if (stale) { stale = false; keepFocus(draw); lookAround() }
  if (trouble) $('said').textContent = 'Not possible: ' + trouble + '.'
  trouble = ''
}

// keepFocus draws, and leaves the focus on what has it, or on what has come in its place.
function keepFocus(drawing) {
  const had = document.activeElement, id = had.id, word = had.dataset.word
  drawing()
  if (document.activeElement === had || had === document.body) return
  const now = id && $(id) || word && document.querySelector('[data-word="' + word + '"]')
  const visible = now && now.checkVisibility() ? now : $('steps').querySelector('button') || $('undo')
  visible.focus({preventScroll: true})
}

// go goes to a schedule, after the moves before.
const go = (schedule, how) => queue(() => show(schedule, how))

const levelOf = head => LEVELS.find(l => l.head === head && l.name === named) || LEVELS.find(l => l.head === head) || null

// show is a move. The reader stays where he is if there is no such state.
async function show(schedule, {keep = false, silent = false, played = false} = {}) {
  const at = await explorer.ask({do: 'at', schedule, second: second || (levelOf(headOf(schedule))?.survives?.algorithm ?? '')})
  turn++
  const other = state && headOf(at.trace.schedule) !== head()
  if (other || !at.trace.events) forget()
  if (other) { exercising = false; $('guide').open = false }
  trouble = ''
  stale = true
  at.code ??= []
  if (!keep) redone = []
  at.trace.events ??= [] // Go's empty lists are null
  at.steps ??= []
  at.time ??= []
  if (at.second) at.second.trace.events ??= []
  state = at
  others = null
  level = levelOf(head())
  if (played) $('guide').open = false // it covers the lanes
  byHand = played && at.trace.schedule !== led
  if (level?.name !== named) named = ''
  const is = [embedded && 'embed', exercising && 'exercise', named].filter(Boolean).join()
  const hash = '#' + (is && is + '=') + encodeURIComponent(at.trace.schedule)
  if (!silent && hash !== location.hash) history[embedded ? 'replaceState' : 'pushState'](null, '', hash) // a frame adds nothing to its page's history
  return true
}

// forget drops what was answered of another lock, or of steps that are gone.
function forget() {
  stop()
  led = ''
  $('progress').replaceChildren()
}

// lookAround finds out what else can be done here, in a Worker of its own: it takes many replays,
// and the next step must not wait for them. Of states that are left meanwhile nothing is asked.
let looking = false
async function lookAround() {
  if (looking) return
  looking = true
  scout ??= new Explorer()
  while (others === null) {
    const mine = turn, more = await scout.ask({do: 'choices', schedule: state.trace.schedule})
    if (mine === turn) { others = more ?? []; drawOthers() }
  }
  looking = false
}

// drawLanes draws the run, and beside it the same schedule on a second lock: a row for each step.
function drawLanes() {
  const t = state.trace, two = state.second, box = $('lanes')
  const one = t => { const path = Lanes.path(t); return n => n < 0 ? Lanes.head(t) : path[n] ? Lanes.row(t, path[n], path[n - 1], String(n)) : element('div', undefined, {class: 'row'}) }
  const left = one(t), right = two && one(two.trace), rows = []
  const parted = two && two.parts <= Math.max(t.events.length, two.trace.events.length)
  for (let n = -1; n <= Math.max(t.events.length, two ? two.trace.events.length : 0); n++) {
    const pair = element('div', undefined, {class: 'pair'})
    pair.append(left(n))
    pair.firstChild.removeAttribute('role')
    if (two) {
      const r = right(n)
      r.classList.add('grey')
      r.removeAttribute('role') // of a list, which this is not
      pair.append(r)
      if (parted && n === two.parts) { pair.classList.add('part'); r.append(element('span', 'here they part', {class: 'parts'})) }
    }
    rows.push(pair)
  }
  box.style.setProperty('--k', t.clients.length)
  box.replaceChildren(...rows)
  $('board').classList.toggle('alone', !two)
  const names = two ? two.others : []
  if ([...$('second').options].map(o => o.value).join() !== names.join()) $('second').replaceChildren(...names.map(n => element('option', n)))
  if (two) $('second').value = two.algorithm
  $('heads').querySelector('label').hidden = $('turn').hidden = !two
  $('grey').replaceChildren()
  if (!two) return
  const e = two.trace.events[two.parts - 1], v = two.trace.verdict
  $('grey').append(element('b', two.algorithm), (v.violated ? ' breaks, too: ' + v.violated + '. ' : ' breaks nothing. ') +
    (parted ? 'They part at step ' + two.parts + (e ? ': ' + (e.who === 'time' ? '' : e.who + ' ') + Lanes.said(e) : '') + '.' : 'So far it does the same.'))
}

// A card is what can come next: each client's message at the foot of its lane, the server, time. The cards stay, and so does the focus on them.
const WAYS = {'': 'deliver', down: 'late', left: 'lost', right: 'reply lost'}
const dragged = {down: 'delay', left: 'sever', right: '-'}

function card(name, hue) {
  const box = element('div', undefined, {class: 'card', role: 'group', 'aria-label': name, 'data-card': name})
  const main = element('button', undefined, {class: 'msg'}), more = element('button', '⋯', {class: 'more', 'aria-label': name + ': what else can happen', 'aria-haspopup': 'dialog'})
  box.style.setProperty('--hue', hue)
  box.append(main, more)
  more.onclick = () => openMenu(name, more)
  return box
}

// cardsFor makes the cards of as many clients, unless they are there.
function cardsFor(t) {
  const names = [...t.clients.map(c => c.name), 'server', 'time']
  if ([...$('steps').children].map(c => c.dataset.card).join() === names.join()) return
  $('steps').style.setProperty('--k', t.clients.length)
  $('steps').dataset.clients = t.clients.length
  $('steps').replaceChildren(...names.map((name, i) => card(name, i < t.clients.length ? 'var(--c' + i + ')' : 'var(--soft)')))
  t.clients.forEach((c, i) => {
    const main = $('steps').children[i].firstChild
    main.onclick = e => { if (!e.detail || !('done' in main.dataset)) choose('C' + (i + 1)) } // e.detail: by a pointer
    drag(main, 'C' + (i + 1))
  })
  const server = $('steps').querySelector('[data-card=server]'), time = $('steps').querySelector('[data-card=time]')
  server.firstChild.onclick = () => openMenu('server', server.firstChild)
  time.firstChild.onclick = pass
}

// drag makes of a message that is drawn aside a lost one, of one that is drawn down a late one.
function drag(button, who) {
  let from = null, way = ''
  button.onpointerdown = e => { if (e.button === 0) { from = e; delete button.dataset.done; button.setPointerCapture(e.pointerId) } }
  button.onpointermove = e => {
    if (!from) return
    const x = e.clientX - from.clientX, y = e.clientY - from.clientY
    way = Math.max(Math.abs(x), y) < 36 ? '' : y > Math.abs(x) ? 'down' : x < 0 ? 'left' : 'right'
    button.style.transform = 'translate(' + x / 2 + 'px,' + Math.max(0, y / 2) + 'px)'
    if (way) button.dataset.way = WAYS[way]
    else delete button.dataset.way
  }
  const end = () => { from = null; way = ''; button.style.transform = ''; delete button.dataset.way }
  // A tap soon after a drag may have no click (the browser takes it for the end of a fling): what counts is the pointer.
  button.onpointerup = e => {
    if (!from) return
    const how = dragged[way], still = Math.abs(e.clientX - from.clientX) < 36 && Math.abs(e.clientY - from.clientY) < 36
    end()
    button.dataset.done = '' // so the click of this pointer is none
    if (how) choose(how === '-' ? who + '-' : who + '.' + how)
    else if (still) choose(who)
  }
  button.onpointercancel = end
}

// drawCards says on each card what it does.
function drawCards() {
  const t = state.trace, e = last()
  cardsFor(t)
  const set = (name, key, word, text, says, can) => {
    const b = $('steps').querySelector('[data-card="' + name + '"]').firstChild
    b.replaceChildren(...(key ? [element('kbd', key)] : []), ...(/^C\d/.test(name) ? [element('b', name), ' '] : []), text, element('small', says))
    b.dataset.word = word
    b.title = text + ': ' + says
    b.setAttribute('aria-disabled', !can)
  }
  t.clients.forEach((c, i) => {
    const o = state.steps.find(o => o.client === c.name)
    if (o) set(c.name, i + 1, o.word, (o.cmd || o.says) + (o.reply ? ' → ' + o.reply : ''), then(o.key), true)
    else set(c.name, i + 1, 'C' + (i + 1), 'sends nothing', believes(e && e.belief[c.name]), false)
  })
  const server = e ? e.server : t.start, o = state.time[0]
  set('server', '', 'server', (/^\d/.test(t.server) ? 'Redis ' : '') + t.server, 'key ' + keyText(server).replace(/^= /, ''), true)
  set('time', 't', o ? o.word : '+', o ? o.word.slice(1) + ' pass' : 'time stands', o ? o.says.replace(/^.* pass(es)?:? ?/, '') || 'nothing ends' : '', !!o)
}

// The menu of a card has all that can happen there and is not its click.
let menuOf = ''
function openMenu(name, by) {
  menuOf = name
  fillMenu()
  $('menu').showPopover()
  const at = by.getBoundingClientRect(), m = $('menu').getBoundingClientRect()
  $('menu').style.left = Math.max(8, Math.min(at.left, innerWidth - m.width - 8)) + 'px'
  $('menu').style.top = Math.max(8, at.top - m.height - 6) + 'px'
  $('menu').querySelector('button')?.focus()
}

function fillMenu() {
  const list = menuOf === 'time' ? state.time : others === null ? null : others.filter(o => menuOf === 'server' ? !o.client : o.client === menuOf)
  const key = o => { const [who, what] = o.word.split('.'), n = who.replace(/\D/g, ''); if (/-$/.test(who)) return 'r ' + n
    for (const [k, v] of Object.entries({...FATES, resume: 'resume', ...SERVER})) if (v === what) return k + (n ? ' ' + n : '')
    return what === 'resume' ? 'p ' + n : '' }
  $('menu').replaceChildren(...(list === null ? [element('p', 'looking …')] : list.map(o => {
    const b = element('button', undefined, {'data-fate': o.word})
    const k = menuOf === 'time' ? '' : key(o)
    b.append(...(k ? [element('kbd', k)] : []), upper(o.short || o.says), element('small', (o.cmd ? o.cmd + '; ' : '') + then(o.key)))
    b.onclick = () => { $('menu').hidePopover(); choose(o.word) }
    return b
  })))
  if (list && !list.length) $('menu').append(element('p', 'Nothing else can happen here now.'))
  if (menuOf !== 'time') return
  const form = element('form'), field = element('input', undefined, {value: '9s', size: 6, 'aria-label': 'how much time'}), b = element('button', 'pass')
  form.append(field, ' ', b)
  form.onsubmit = e => { e.preventDefault(); $('menu').hidePopover(); choose('+' + field.value.trim().replace(/^\+/, '')) }
  $('menu').append(form)
}

// drawOthers completes a menu that was opened before all was known.
function drawOthers() {
  if (!$('menu').matches(':popover-open') || menuOf === 'time') return
  fillMenu()
  $('menu').querySelector('button')?.focus()
}

// drawGuide says in a line what is to be done now.
function drawGuide() {
  const t = state.trace, tap = matchMedia('(pointer: coarse)').matches ? 'tap' : 'click', broken = t.verdict.violated
  const waits = t.clients.some((c, i) => !state.steps.some(o => o.word === 'C' + (i + 1)))
  document.documentElement.classList.toggle('coarse', tap === 'tap')
  $('leveltitle').textContent = level ? (isOpening() ? '' : (level.no ? 'Level ' + level.no : level.name) + ': ') + (broken ? upper(level.title) + '.' : '') : '' // a title tells the answer
  $('leveltext').textContent = level ? level.text : ''
  $('hint').hidden = !level?.graph
  $('task').hidden = !level?.exercise
  exercising &&= !!level?.exercise
  $('task').setAttribute('aria-pressed', exercising)
  $('howto').hidden = exercising
  $('goals').replaceChildren(...(exercising ? [element('p', level.exercise.text), ...level.exercise.goals.map(g => element('li', g))] : []))
  $('wide').href = '#' + encodeURIComponent(t.schedule)
  const what = broken ? 'Broken. See why below, and where the grey lock parts from it.'
    : exercising ? level.exercise.text
    : level && !isOpening() ? level.objective
    : !t.events.length ? 'Make two clients hold the lock at once: you choose whose command runs next, what gets lost, when time passes. ' + upper(tap) + ' C1’s card.'
    : isOpening() ? level.objective
    : waits ? 'One of them sends nothing now: another one’s turn, or time’s.'
    : 'Make two clients hold the lock at once: whose message comes next?'
  $('now').textContent = exercising ? level.exercise.text : what
  if (exercising) mark()
}

// mark has the steps judged as an answer to the exercise.
async function mark() {
  const mine = turn, answer = t => { if (mine === turn) $('hinttext').textContent = t }
  try {
    const m = await explorer.ask({do: 'exercise', race: level.name, schedule: words().join(' ')})
    answer(m.right ? '✓ Right: that answers the exercise.' : m.lacks ? 'Not yet: ' + m.lacks + '.' : '')
  } catch (err) { answer(err.message) }
}

// drawProtocol shows what each lock sends, with the line that each client is to send next. It is found out once for a lock.
const protocols = new Map()
function drawProtocol() {
  const t = state.trace, of = head(), own = ownCode()
  const known = protocols.get(of)
  if (!known) {
    protocols.set(of, [])
    scout ??= new Explorer()
    scout.ask({do: 'protocol', schedule: join(of, [])}).then(list => {
      protocols.set(of, list ?? [])
      if (head() === of) drawProtocol()
    })
  }
  $('protocol').replaceChildren(...own, ...(known ?? []).filter(p => !p.lock.startsWith('form/')).flatMap(({lock, lines}) => {
    const all = [...lines], pre = element('pre', undefined, {tabindex: 0, role: 'region', 'aria-label': lock + ' sends'})
    const at = t.clients.map((c, i) => {
      const next = state.steps.find(o => o.client === c.name), doing = state.code[i]?.doing
      return (c.runs || t.algorithm) === lock && next && next.line && doing ? {doing, line: next.line} : null
    })
    for (const a of at) if (a && !all.some(l => l.doing === a.doing && l.line === a.line)) all.push({...a, replies: []}) // seen nowhere else
    let doing = ''
    for (const l of all) {
      const who = at.flatMap((a, i) => a && a.doing === l.doing && a.line === l.line ? [i] : [])
      if (l.doing !== doing) pre.append(element('span', (doing = l.doing) + '\n', {class: 'phase'}))
      const line = element('span', l.line + (l.replies.length ? ' → ' + l.replies.join(', or ') : '') + '\n', {'data-who': who.map(i => 'C' + (i + 1)).join(' ')})
      if (who.length) { line.className = 'lit'; line.style.setProperty('--hue', 'var(--c' + who[0] + ')') }
      pre.append(line)
    }
    return [element('h3', lock), pre]
  }))
}

// drawCode shows the function that each client is in, with the line that it is at.
function drawCode() {
  const shown = new Map() // a function's first line, by file: who is at which line of it
  const idle = []
  state.trace.clients.forEach((c, i) => {
    const at = state.code[i], list = []
    if (at.type === 'catalogue.formed') return // ownCode
    if (at.lock.n) list.push(at.lock)
    else if (at.doing) list.push(method(at), at.engine.n ? at.engine : null)
    if (!list.some(l => l && CODE[l.file])) return idle.push(c.name)
    for (const l of list.filter(l => l && CODE[l.file])) {
      const [from, to] = body(l)
      const key = l.file + ':' + from
      if (!shown.has(key)) shown.set(key, {file: l.file, from, to, at: new Map()})
      const lit = shown.get(key).at
      lit.set(l.n, [...lit.get(l.n) || [], i])
    }
  })
  const box = $('code')
  box.replaceChildren()
  for (const f of shown.values()) {
    const pre = element('pre', undefined, {tabindex: 0, role: 'region', 'aria-label': f.file})
    for (let n = f.from; n <= f.to; n++) {
      const who = f.at.get(n), line = element('span', undefined, {'data-who': who ? who.map(i => 'C' + (i + 1)).join(' ') : ''})
      const [code, ...says] = CODE[f.file][n - 1].split('//')
      line.append(code, ...(says.length ? [element('i', '//' + says.join('//'))] : []), '\n')
      if (who) { line.className = 'lit'; line.style.setProperty('--hue', 'var(--c' + who[0] + ')') }
      pre.append(line)
    }
    box.append(element('h3', f.file + (f.file.startsWith('compat/') && !f.file.slice(7).includes('/') ? ', which carries it out' : '')), pre)
    const lit = pre.querySelector('.lit')
    if (lit) pre.scrollTop = lit.offsetTop - pre.offsetTop - 60
  }
  const says = [...state.code.entries()].filter(([, at]) => at.doing).map(([i, at]) => 'C' + (i + 1) + ' is to ' + at.doing + (at.type === 'catalogue.formed' ? '' : ' (' + at.type + ')'))
  if (says.length) box.append(element('p', says.join(', ') + (idle.length ? '; ' + idle.join(', ') + ' stands at no line of it' : '') + '.'))
  else box.append(element('p', 'No client stands in the lock’s code: it is between two attempts, holds the lock, or is gone.'))
}

// ownCode shows the locks that are written out in a schedule, each with the line that a client is to send.
function ownCode() {
  return [...new Set(state.trace.algorithm.split('+'))].filter(name => name.startsWith('form/')).map(name => {
    const lines = name.slice(5).split(';'), release = lines.indexOf('release'), pre = element('pre', undefined, {tabindex: 0, role: 'region', 'aria-label': 'your lock'})
    const who = lines.map(() => [])
    state.trace.clients.forEach((c, i) => {
      const at = state.code[i], next = state.steps.find(o => o.client === c.name)
      if (!at.doing || !next || !next.cmd || (c.runs || state.trace.algorithm) !== name) return
      const n = lines.findIndex((l, n) => l.split(',')[0] === next.cmd.split(/[ ;]/)[0] && (release < 0 || (n > release) === (at.doing === 'release')))
      if (n >= 0) who[n].push(i)
    })
    lines.forEach((l, n) => {
      const line = element('span', l.replaceAll(',', ' ').replace('=', ' = ') + '\n', {'data-who': who[n].map(i => 'C' + (i + 1)).join(' ')})
      if (who[n].length) { line.className = 'lit'; line.style.setProperty('--hue', 'var(--c' + who[n][0] + ')') }
      pre.append(line)
    })
    return pre
  })
}

// body is the function around a line, without its comment.
function body({file, n}) {
  const lines = CODE[file] || []
  let from = n, to = n
  while (from > 1 && !/^(func|type|var) /.test(lines[from - 1])) from--
  if (/^func .*}$/.test(lines[from - 1])) return [from, from]
  while (to < lines.length && lines[to - 1] !== '}') to++
  return [from, to]
}

// method finds what an algorithm names a change in, which the engine carries out.
function method({type, doing}) {
  const [dir, name] = type.split('.'), what = doing[0].toUpperCase() + doing.slice(1)
  for (const [file, lines] of Object.entries(CODE)) {
    if (file.split('/').at(-2) !== dir) continue
    const n = lines.findIndex(l => new RegExp('^func \\(\\w* ?\\*?' + name + '\\) ' + what + '\\(').test(l))
    if (n >= 0) return {file, n: n + 1}
  }
  return null
}

const last = () => state.trace.events[state.trace.events.length - 1]

function keyText(s) {
  if (!s.value) return 'is free'
  let text = '= ' + s.value
  if (!s.each) text += s.ttl_ms >= 0 ? ', ttl ' + seconds(s.ttl_ms) : ', no ttl' // of several servers each has its own
  if (s.dead) text += ', expired and still in memory'
  return text
}

const then = key => 'then the key ' + keyText(key).replace(/^= /, 'holds ')

function believes(b) {
  if (!b) return 'idle'
  if ((b.state === 'holds' || b.state === 'acts') && b.until_ms >= 0) return b.state + ' until ' + seconds(b.until_ms)
  return b.state
}

let looked = '' // the head for which the reader, or the schedule, has said what is looked for

// sentence says a step to one who does not see the picture.
function sentence(e) {
  let text = 'Step ' + e.n + ', at ' + seconds(e.at_ms) + ': ' + (e.who === 'time' ? '' : e.who + ' ') + (e.cmd || e.note)
  if (e.lost) text += {reply: ', its reply is lost', request: ', it never arrives', late: ', it is still on its way', cut: ', the connection breaks'}[e.lost]
  else if (e.reply) text += ', answered ' + e.reply
  return text + '. ' + e.why
}

function draw() {
  const t = state.trace, e = last(), server = e ? e.server : t.start
  const check = / check=(\w+)(?= |$)/.exec(head())
  if (looked !== (looked = head())) $('check').value = check && [...$('check').options].some(o => o.value === check[1]) ? check[1] : ''
  if (!exercising) $('hinttext').textContent = isOpening() && !t.verdict.violated ? advice().says : ''
  if (!t.schedule.startsWith(compared)) $('compare').hidden = true
  $('setting').replaceChildren(nameOf(t.algorithm) + ' · ' + (/^\d/.test(t.server) ? 'Redis ' : '') + t.server, element('span', ' · key ' + t.key + ' · lease ' + seconds(t.ttl_ms)))
  $('count').textContent = 'step ' + t.events.length
  $('said').textContent = e ? sentence(e) : 'Nothing has run yet.'
  $('picture').innerHTML = state.picture // the engine escapes what stands in it
  $('picture').scrollLeft = $('picture').scrollWidth
  enable('undo', t.events.length > 0)
  enable('redo', redone.length > 0)
  enable('reset', t.events.length > 0)
  $('replay').replaceChildren(...unbroken(state.replay))

  drawLanes()
  drawCards()
  drawProtocol()
  drawCode()
  drawGuide()

  const rows = [row('th', 'client', 'its clock', 'believes', 'sends next')]
  for (const c of t.clients) {
    const b = e && e.belief[c.name]
    rows.push(row('td', c.name + (c.runs ? ' (' + nameOf(c.runs) + ')' : ''), seconds(b ? b.now_ms : c.skew_ms), believes(b), b ? b.next || '' : ''))
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
  $('lanes').scrollTop = $('lanes').scrollHeight // now that all below it has its height
}

// enable does not disable for the browser: a disabled button loses the focus.
function enable(id, on) { $(id).setAttribute('aria-disabled', !on) }

function row(cell, ...texts) {
  const r = element('tr')
  for (const text of texts) r.append(element(cell, text, cell === 'th' ? {scope: 'col'} : {}))
  return r
}

function drawViolation() {
  const v = state.trace.verdict, box = $('violation'), why = $('argument')
  box.replaceChildren()
  why.replaceChildren()
  $('after').hidden = true
  if (!v.violated) return
  const a = state.trace.argument, e = state.trace.events[v.step - 1]
  const says = element('p'), ask = element('button', '', {id: 'which'})
  ask.append(element('kbd', 'w'), 'Which lock survives?')
  ask.onclick = () => keys.w()
  says.append(element('b', 'Broken: ' + v.violated), ' at step ' + v.step + ': ' + e.violation.text + '. ', ask)
  box.append(says)
  why.append(element('h2', 'Why it breaks'))
  for (const [label, list] of [['Let', a.let], ['Then', a.then], ['So', a.so && [a.so]]]) {
    for (const text of list || []) why.append(element('p', label + ' ' + text))
  }
  const help = element('button', 'What would help, in every order?')
  const answer = element('p', '', {role: 'status'})
  help.onclick = async () => {
    const schedule = state.trace.schedule
    try { answer.textContent = await search({do: 'remedy', schedule}) } catch (err) { answer.textContent = err.message }
  }
  why.append(help, answer)
  if (level) drawSolved(v)
}

// survivors has the other locks follow this schedule.
async function survivors() {
  const broke = state.trace, box = $('compare')
  if (!broke.verdict.violated) return
  let list
  try { list = await search({do: 'survivors', schedule: broke.schedule}) } catch (err) { if (state.trace === broke) $('progress').textContent = err.message; return }
  $('progress').replaceChildren()
  const good = list.filter(f => f.holds), bad = list.filter(f => !f.holds)
  box.hidden = false
  compared = broke.schedule
  box.replaceChildren(element('h2', good.length ? good.map(f => f.algorithm).join(', ') + (good.length === 1 ? ' survives' : ' survive') + ' this schedule' : 'No lock here survives this schedule'))
  if (bad.length) box.append(element('p', 'It breaks ' + bad.map(f => f.algorithm).join(', ') + ' as well.'))
  if (!good.length) return box.scrollIntoView({block: 'nearest'})
  const pick = element('select')
  pick.append(...good.map(f => element('option', f.algorithm)))
  const label = element('label', 'Beside it: ')
  label.append(pick)
  const beside = element('div')
  const show = async () => {
    const f = good.find(f => f.algorithm === pick.value)
    const {trace} = await explorer.ask({do: 'at', schedule: f.schedule})
    drawBeside(beside, broke, trace, f)
  }
  pick.onchange = show
  box.append(label, beside, element('p', 'This is one schedule. What holds in every order of the same faults, “What would help” finds out.'))
  await show()
  box.scrollIntoView({block: 'nearest'})
}

// drawBeside shows two runs step by step, with the step at which they part.
function drawBeside(box, broke, is, f) {
  const did = e => !e ? '' : (e.who === 'time' ? '' : e.who + ' ') + (e.cmd || e.note) + (e.lost ? ' ⇢ ' + e.lost + ' lost' : e.reply ? ' → ' + e.reply : '')
  const table = element('table'), parts = f.parts - 1
  const head = row('th', '#', nameOf(broke.algorithm), f.algorithm)
  table.append(head)
  for (let n = 0; n < Math.max(broke.events.length, is.events.length); n++) {
    const r = row('td', n + 1, did(broke.events[n]), did(is.events[n]))
    if (n === parts) r.className = 'part'
    if (broke.events[n] && broke.events[n].violation) { r.classList.add('broken'); r.children[1].append(element('b', ' ✗ ' + broke.events[n].violation.text)) }
    table.append(r)
  }
  const scroll = element('div', undefined, {class: 'scroll', role: 'region', tabindex: 0, 'aria-label': 'Both runs'})
  scroll.append(table)
  const says = element('p', 'They part at step ' + f.parts + '. ', {id: 'parting'})
  if (is.events[parts]) says.append(f.algorithm + ': ' + did(is.events[parts]) + '. ' + is.events[parts].why)
  const on = element('button', 'go on with ' + f.algorithm)
  on.onclick = () => go(f.schedule)
  box.replaceChildren(says, scroll, on)
}

// Levels.

const progress = () => { try { return JSON.parse(localStorage.getItem('setnxlock-levels') || '{}') } catch { return {} } }

function drawLevels() {
  const done = progress()
  $('levellist').replaceChildren(...LEVELS.filter(l => l.graph).map((l, i) => {
    const li = element('li', undefined, {value: i}), b = element('button', i === 0 || done[l.name] ? upper(l.title) : l.objective)
    b.onclick = () => begin(l)
    li.append(b, done[l.name] ? ' ✓ in ' + counted(done[l.name]) : '')
    return li
  }))
}

async function begin(l) {
  $('levels').open = false
  named = l.name.includes('/') ? l.name : ''
  second = ''
  await go(join(l.head, []))
  scrollTo(0, 0)
}

// drawSolved is what is told afterwards: the shortest, the fix, the lock that survives.
function drawSolved(v) {
  const done = progress()
  const before = done[level.name] || Infinity
  if (byHand && v.step < before) {
    done[level.name] = v.step
    try { localStorage.setItem('setnxlock-levels', JSON.stringify(done)) } catch { /* nothing is kept then */ }
    drawLevels()
  }
  const box = $('after')
  box.hidden = false
  const best = !level.graph ? '' : (n => n >= v.step ? level.graph.cut ? '' : ' There is no shorter way with these steps.' : ' It can be done in ' + n + '.')(way(level, 0).n)
  box.replaceChildren(element('h2', 'Solved, in ' + counted(v.step) + '.' + best), element('p', level.fix))
  if (level.survives) {
    const b = element('button', 'The same race on ' + level.survives.algorithm + ', which survives it')
    const to = level.survives.schedule
    b.onclick = () => go(to)
    box.append(b)
  }
  const next = LEVELS[LEVELS.indexOf(level) + 1]
  if (next?.no) {
    const b = element('button', 'Next level', {title: next.objective})
    b.onclick = () => begin(next)
    b.id = 'next'
    $('violation').firstChild.append(' ', b)
  }
}

// way is how many choices away the objective is from a state of a level's graph, and the first of them; null: it is nowhere.
function way({graph, goal}, from) {
  let ring = [{at: from}], seen = new Set([from])
  for (let n = 0; ring.length; n++) {
    const there = ring.find(s => graph.states[s.at].broken === goal)
    if (there) return {n, word: there.word}
    ring = ring.flatMap(s => Object.entries(graph.states[s.at].to).filter(([, to]) => !seen.has(to) && seen.add(to)).map(([word, at]) => ({at, word: s.word || word})))
  }
  return null
}

// advice is exact for the steps that the level offers, which were all run when the page was made: how far it is, and what is next.
function advice() {
  const graph = level.graph, path = [0]
  for (const w of words()) {
    const to = graph.states[path[path.length - 1]].to[w]
    if (to === undefined) break
    path.push(to)
  }
  const off = words().length + 1 - path.length // words that the level has not
  for (let back = 0; back < path.length; back++) {
    const to = way(level, path[path.length - 1 - back])
    if (!to) continue
    if (off + back === 0) return {says: counted(to.n) + ' to go' + (graph.cut ? ', at the most.' : '.'), word: to.word}
    return {says: 'No way on from here is known: undo ' + (off + back) + ', then ' + counted(to.n) + ' to go.'}
  }
  return {says: 'No way is known.'}
}

// hint says how far it is; asked again, which card is next.
let hinted = -1
function hint() {
  if (!level?.graph || state.trace.verdict.violated) return
  const {says, word} = advice(), [who, what] = (word ?? '').split('.')
  const next = !word ? '' : word === state.time[0]?.word ? ' Next: the card of time.' : /^C\d$/.test(word) ? ' Next: ' + word + '’s card.'
    : ' Next: ' + (word[0] === '+' ? word.slice(1) + ', behind the ⋯ of time.' : (what || 'its reply is lost') + ', behind the ⋯ of ' + (who[0] === 'C' ? who.slice(0, 2) : 'the server') + '.')
  $('hinttext').textContent = says + (hinted === turn || isOpening() ? next : '')
  hinted = turn
}

// isOpening: the game that the page begins with says at each step how far it is.
const isOpening = () => level === LEVELS[0]

// Moves.

const choose = word => queue(() => move(word))
const move = word => show(join(head(), [...words(), word]), {played: true})

// either makes the first of some moves that can be made.
const either = (...list) => queue(async () => {
  for (const word of list.slice(0, -1)) {
    try { return await move(word) } catch { /* the next one */ }
  }
  return move(list[list.length - 1])
})

// pass lets time pass until something ends, or a second.
const pass = () => queue(() => state.time.length && move(state.time[0].word))

// What is typed of a move: + and a time, or what becomes of whose message.
let begun = ''
const FATES = {x: 'sever', r: '-', l: 'delay', a: 'arrive', b: 'cut', n: 'refuse', g: 'stall', k: 'look', p: 'pause', c: 'crash'}
const SERVER = {R: 'restart', F: 'failover', E: 'evict', X: 'reap', D: 'down', J: 'clock'}

// typed takes a key that is part of a move.
function typed(key) {
  const was = begun
  begun = ''
  const set = key => SERVER[key] + (key === 'J' ? '+' + (state.trace.ttl_ms / 1000 + 1) + 's' : '')
  const servers = state.trace.start.each ? state.trace.start.each.length : 1
  if (was[0] === '+') {
    if (key === 'Enter') choose(was)
    else if (key === 'Backspace') begun = was.slice(0, -1)
    else if (/^[\w.~]$/.test(key)) begun = was + key
  } else if (was && /^[1-9]$/.test(key)) {
    if (SERVER[was]) choose('S' + key + '.' + set(was))
    else if (was === 'r') choose('C' + key + '-')
    else if (was === 'p') either('C' + key + '.pause', 'C' + key + '.resume')
    else choose('C' + key + '.' + FATES[was])
  } else if (key === '+' || FATES[key] || SERVER[key] && servers > 1) begun = key
  else if (SERVER[key]) choose('redis.' + set(key))
  else if (/^[1-4]$/.test(key)) {
    if (key > state.trace.clients.length) return false
    choose('C' + key)
  } else if (!was) return false
  $('typing').textContent = begun && begun[0] === '+' ? 'Time passes: ' + begun + ' … Enter' : begun ? begun + ': whose? ' + (SERVER[begun] ? 'server 1 to ' + servers : 'client 1 to ' + state.trace.clients.length) : ''
  return true
}

const undo = () => queue(async () => {
  const w = words()
  if (!w.length) return
  const undone = [w[w.length - 1], ...redone]
  await show(join(head(), w.slice(0, -1)), {keep: true})
  redone = undone
})

const redo = () => queue(async () => {
  if (!redone.length) return
  const left = redone.slice(1)
  await show(join(head(), [...words(), redone[0]]), {keep: true})
  redone = left
})

const reset = () => queue(() => show(join(head(), [])))

// A log of MONITOR's. It stands beside the state that is shown: nobody knows its replies, and it can't go on.
async function readLog(text, key = '') {
  const box = $('log')
  let log
  try { log = await explorer.ask({do: 'monitor', text, key}) } catch (err) { $('said').textContent = 'Not possible: ' + err.message + '.'; return }
  const t = log.trace, names = t.clients.map(c => c.name)
  box.hidden = false
  box.replaceChildren(element('h2', 'What MONITOR saw of ' + t.key, {id: 'logtitle'}))
  if ((log.keys ?? []).length > 1) {
    const pick = element('select'), label = element('label', 'Key ')
    pick.append(...log.keys.map(k => element('option', k)))
    pick.value = t.key
    pick.onchange = () => readLog(text, pick.value)
    label.append(pick)
    box.append(label)
  }
  const broken = t.events.filter(e => e.violation)
  const says = element('p', broken.length ? '' : log.unjudged ? upper(log.unjudged) + '.' : 'As far as the log tells, no two clients held it at once, and nobody removed another’s lock.', {id: 'logsays'})
  for (const e of broken) says.append(element('b', 'Broken: ' + e.violation.invariant + ' at step ' + e.n + ': ' + e.violation.text + '. '))
  const who = element('ul')
  for (const f of log.follows) {
    const li = element('li', f.client + ' (' + f.address + ') ' + (f.does.length ? f.does.join(', ') : 'does not ask for it') + (f.like.length ? ': as ' + f.like.join(', ') : f.does.length ? ': as none of this library’s locks' : '') + '.')
    if (f.like.length) {
      const b = element('button', 'break ' + f.like[0] + ' here')
      b.onclick = () => go(f.like[0] + ' 2.4 2x3 :')
      li.append(' ', b)
    }
    who.append(li)
  }
  const picture = element('figure', undefined, {class: 'picture-of-log', role: 'group', tabindex: 0, 'aria-label': 'The log as a picture; the table below says the same'})
  picture.innerHTML = log.picture // the engine escapes what stands in it
  const table = element('table'), scroll = element('div', undefined, {class: 'scroll', role: 'region', tabindex: 0, 'aria-label': 'The log as a table'})
  table.append(row('th', '#', 'time', 'who', 'what', 'key', 'who holds it', 'why'))
  for (const e of t.events) {
    const holds = names.filter(n => e.belief[n].state === 'holds')
    const r = row('td', e.n, seconds(e.at_ms), e.who, e.cmd + (e.reply ? ' → ' + e.reply : ''), keyText(e.server), holds.join(' and '), e.why)
    r.lastChild.className = 'why'
    if (e.violation) r.className = 'broken'
    table.append(r)
  }
  scroll.append(table)
  const told = element('ul', undefined, {id: 'logtold'})
  told.append(...(log.says ?? []).map(s => element('li', s)))
  const way = element('p')
  if (log.way) {
    const on = element('button', 'Go on in the explorer from step ' + log.way.step + ' of the log (step ' + wordsOf(log.way.schedule).length + ' there)')
    on.onclick = () => { go(log.way.schedule); scrollTo(0, 0) }
    way.append(on)
  }
  box.append(says, told, way, who, picture, scroll)
  $('bring').open = false
  box.scrollIntoView({block: 'start'})
  box.focus({preventScroll: true})
}

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
  const of = head(), mine = turn // a reader who goes on is not led away
  let r
  try {
    r = await search(level ? {do: 'find', race: level.name} : {do: 'find', schedule: join(of.replace(/ check=\S+/, ''), []), faults: faults(), ticks: Number($('ticks').value), check: $('check').value})
  } catch (err) {
    if (of === head()) $('progress').textContent = err.message
    return
  }
  if (of !== head()) return // it is no answer for another lock
  const more = element('details'), all = element('p', r.says + ' ' + r.states.toLocaleString('en') + ' states, ' + r.seconds.toFixed(1) + ' s.')
  more.append(element('summary', 'what was tried'), all)
  $('progress').replaceChildren(r.answer + ' ', more)
  if (r.verdict !== 'violated') return
  led = r.schedule
  if (leads && mine === turn) return go(led)
  const b = element('button', 'show them', {type: 'button'})
  b.onclick = () => go(r.schedule)
  more.before(b, ' ')
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

// templates are the locks to begin one's own with.
function templates(list) {
  $('template').replaceChildren(...list.map((x, i) => element('option', x.name, {value: i})))
  $('ownserver').replaceChildren(...[...$('server').options].map(o => element('option', o.value)))
  const take = () => {
    const x = list[$('template').value]
    $('program').value = x.text
    $('ownserver').value = x.server
    $('formsays').textContent = upper(x.says) + '.'
  }
  $('template').onchange = take
  take()
}

function fleets(parties) {
  for (const id of ['fleet1', 'fleet2']) {
    const groups = [element('optgroup', undefined, {label: "this library's"}), element('optgroup', undefined, {label: 'in the field'})]
    for (const p of parties) {
      const o = element('option', p.name.split('/').slice(1).join('/'), {value: p.name, title: p.says})
      groups[p.shipped ? 0 : 1].append(o)
    }
    $(id).replaceChildren(...groups)
  }
  $('fleet1').value = (parties.find(p => p.name === 'theirs/redis-py-2.9') || parties[0]).name
  $('fleet2').value = parties[0].name
}

function bind() {
  $('free').onsubmit = e => {
    e.preventDefault()
    $('setup').open = false
    second = ''
    go([$('lock').value, $('server').value, $('clients').value + 'x' + $('attempts').value, ':'].join(' '))
  }
  $('search').onsubmit = e => { e.preventDefault(); explore(true) }
  $('find').onclick = () => explore(true)
  $('safe').onclick = () => explore(false)
  $('stop').onclick = stop
  $('said').onclick = () => $('said').classList.toggle('whole')
  $('undo').onclick = undo
  $('redo').onclick = redo
  $('reset').onclick = reset
  $('hint').onclick = hint
  $('task').onclick = () => { exercising = !exercising; draw(); $('guide').open = exercising }
  $('gocode').ontoggle = drawCode // a lit line is scrolled to where there is a height
  $('second').onchange = () => { second = $('second').value; go(state.trace.schedule, {keep: true, silent: true}) }
  $('turn').onclick = () => {
    const on = $('board').classList.toggle('other')
    $('turn').setAttribute('aria-pressed', on)
    $('turn').textContent = on ? 'the first' : 'the grey one'
  }
  $('keys').onclick = () => { $('help').hidden = !$('help').hidden; $('keys').setAttribute('aria-expanded', !$('help').hidden) }
  $('go').onclick = () => go($('paste').value.replace(/^\s*setnxlock race replay\s+/, '').replace(/^'(.*)'\s*$/, '$1'))
  $('file').onchange = async () => {
    const text = await $('file').files[0].text()
    if (/^(OK\s+)?\+?\d+\.\d+ [[("]/.test(text.trimStart())) return readLog(text)
    let schedule
    try { schedule = JSON.parse(text).schedule } catch { schedule = text.trim() }
    if (!schedule) { $('said').textContent = 'That file has no schedule.'; return }
    go(schedule)
  }
  $('readlog').onclick = () => readLog($('lines').value)
  $('sample').onclick = async () => { $('lines').value = await explorer.ask({do: 'sample'}); readLog($('lines').value) }
  $('form').onsubmit = e => {
    e.preventDefault()
    begun = ''
    explorer.ask({do: 'form', text: $('program').value}).then(name => {
      $('formsays').textContent = ''
      $('own').open = false
      second = ''
      go([name, $('ownserver').value, $('ownclients').value + 'x' + $('ownattempts').value, ':'].join(' '))
    }, err => { $('formsays').textContent = upper(err.message) + '.' })
  }
  $('two').onsubmit = async e => {
    e.preventDefault()
    const box = $('answer')
    box.textContent = 'The explorer searches …'
    let r
    try { r = await search({do: 'pair', pair: [$('fleet1').value, $('fleet2').value]}) } catch (err) { box.textContent = err.message; return }
    $('progress').replaceChildren()
    box.replaceChildren(element('p', (r.safe ? 'Yes, within the bounds of docs/mixing.md: no two clients hold it at once, and nobody is stuck.' : 'No.') + ' ' + r.states.toLocaleString('en') + ' states.'))
    for (const s of r.says) {
      const p = element('p', s.text + ' '), b = element('button', 'show it', {type: 'button'})
      b.onclick = () => go(s.schedule)
      p.append(b)
      box.append(p)
    }
  }
  $('copy').onclick = () => navigator.clipboard?.writeText(state.replay).then(() => { $('copy').textContent = 'copied' }, () => getSelection().selectAllChildren($('replay')))
  $('svg').onclick = () => {
    const svg = $('picture').querySelector('svg').cloneNode(true)
    svg.setAttribute('xmlns', 'http://www.w3.org/2000/svg')
    // Programs that draw know neither CSS's variables nor HTML's style, some no CSS at all: each part bears what it
    // looks like. The colours are those of paper, and the page's own are as they were when it is drawn again.
    svg.classList.add('paper')
    svg.style.cssText = 'position:absolute;visibility:hidden'
    $('picture').append(svg)
    const paper = getComputedStyle(svg).getPropertyValue('--paper').trim()
    for (const e of svg.querySelectorAll('text, path, rect')) {
      const looks = getComputedStyle(e)
      for (const name of ['fill', 'stroke', ...e.tagName === 'text' ? ['font-family', 'font-size', 'font-weight', 'text-anchor'] : ['fill-opacity', 'stroke-width', 'stroke-dasharray']])
        e.setAttribute(name, looks.getPropertyValue(name).replace(/(\d)px/g, '$1'))
      if (looks.opacity !== '1') e.setAttribute('opacity', looks.opacity)
    }
    svg.remove()
    svg.removeAttribute('style')
    const ground = document.createElementNS(svg.namespaceURI, 'rect')
    for (const [name, value] of Object.entries({width: '100%', height: '100%', fill: paper})) ground.setAttribute(name, value)
    svg.prepend(ground)
    const a = element('a', '', {download: 'race.svg', href: URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], {type: 'image/svg+xml'}))})
    a.click()
    URL.revokeObjectURL(a.href)
  }
  keys = {
    u: undo, y: redo, 0: reset, h: hint, e: () => $('task').hidden || $('task').click(), f: () => queue(() => { explore(true) }), s: () => queue(() => { explore(false) }), w: () => queue(() => { survivors() }), Escape: stop, '?': () => $('keys').click(),
    t: pass,
  }
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.key !== 'Escape') return
    if (typed(e.key)) return e.preventDefault()
    const act = keys[e.key]
    if (!act) return
    e.preventDefault()
    act()
  })
  addEventListener('popstate', () => { const s = clean(location.hash); if (s && !s.startsWith('fleets=') && s !== state.trace.schedule) go(s, {silent: true}) })
}

async function main() {
  try {
    await load()
    explorer = new Explorer()
    choices(await explorer.ask({do: 'table'}))
    templates(await explorer.ask({do: 'templates'}))
    fleets(await explorer.ask({do: 'parties'}))
  } catch (err) {
    $('loadingtext').textContent = 'The explorer does not start: ' + err.message
    $('bar').remove()
    return
  }
  document.documentElement.classList.toggle('embed', embedded)
  drawLevels()
  if (embedded) { $('wide').hidden = false; $('wide').target = '_blank' }
  const two = /^fleets=([^+]+)\+([^+]+)$/.exec(clean(location.hash)), wanted = two ? '' : clean(location.hash)
  const first = LEVELS[0].head + ' :'
  if (!await go(wanted || first, {silent: !wanted})) {
    const why = $('said').textContent
    await go(first)
    $('said').textContent = 'The address leads nowhere. ' + why
  }
  bind()
  $('loading').hidden = $('intro').hidden = true
  $('app').hidden = false
  $('lanes').scrollTop = $('lanes').scrollHeight
  performance.mark('ready')
  $('picture').scrollLeft = $('picture').scrollWidth
  if (two) {
    $('fleets').open = true
    $('fleet1').value = two[1]
    $('fleet2').value = two[2]
    $('two').requestSubmit()
    $('answer').scrollIntoView({block: 'center'})
  }
}
main()
