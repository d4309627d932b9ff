// Answers for one server and some faults: which locks hold under all of them, and what breaks the
// others. The address keeps the question.
'use strict'
{
  const $ = id => document.getElementById(id)
  const { faults, servers, locks } = JSON.parse($('guarantees').textContent)
  const el = (name, text, cls) => { const e = document.createElement(name); if (text) e.textContent = text; if (cls) e.className = cls; return e }
  for (const s of servers) $('server').append(new Option(/^\d/.test(s) ? 'Redis ' + s : s, s))
  for (const f of faults) {
    const label = el('label'), box = el('input')
    box.type = 'checkbox'; box.value = f.name
    label.append(box, ' ' + f.name, el('small', f.says))
    $(/^(no release|renewal|hand-off|shorter|longer|detached|old handle|batch|one conn|downgrade|waiting|late request)/.test(f.name) ? 'use' : 'faults').append(label)
  }
  const boxes = [...$('filter').querySelectorAll('input')]
  const asked = new URLSearchParams(location.hash.slice(1))
  $('server').value = servers.includes(asked.get('server')) ? asked.get('server') : '7.0'
  const chosen = asked.has('faults') ? asked.get('faults').split(';') : ['none', 'crash', 'lost reply', 'lost request', 'cut', 'late']
  for (const b of boxes) b.checked = chosen.includes(b.value)

  const show = () => {
    const server = $('server').value, on = boxes.filter(b => b.checked).map(b => b.value)
    const rows = [], refused = []
    for (const l of locks) {
      const column = l.columns.find(c => c.servers.includes(server))
      if (!column) continue
      if (column.verdicts.none === 'refused') { refused.push(l.name); continue }
      const broken = new Map(), unasked = []
      for (const f of on) {
        const v = column.verdicts[f]
        if (v === undefined || v === 'refused' || v.startsWith('not proved')) unasked.push(f)
        else if (v !== 'holds') for (const name of v.split(', ')) broken.set(name, [...(broken.get(name) ?? []), f])
      }
      rows.push({ l, broken, unasked })
    }
    rows.sort((a, b) => a.broken.size - b.broken.size)
    const good = rows.filter(r => !r.broken.size && on.length)
    $('answer').textContent = !on.length ? 'Choose what may go wrong.'
      : `${good.length} of ${rows.length} locks hold on ${/^\d/.test(server) ? 'Redis ' + server : server} under ${on.length === 1 ? 'this' : 'all of these'}, one kind of fault at a time, within the bounds.` +
        (refused.length ? ` Refused there, by themselves: ${refused.join(', ')}.` : '')
    const table = $('result'), head = el('tr')
    head.append(el('th', 'lock'), el('th', 'verdict'), el('th', 'what it is'))
    table.replaceChildren(head)
    for (const { l, broken, unasked } of on.length ? rows : []) {
      const row = el('tr'), name = el('td'), link = el('a', l.name)
      link.href = '#' + l.name.replace(/[^a-z0-9]+/g, '-')
      link.onclick = () => { document.querySelector(link.hash).open = true }
      const verdict = el('td', '', broken.size ? 'breaks' : 'holds')
      verdict.append(el('b', broken.size ? 'breaks' : 'holds'))
      for (const [what, under] of broken) verdict.append(el('br'), `${what}: ${under.length === on.length ? 'under each' : under.join(', ')}`)
      if (unasked.length) verdict.append(el('br'), el('small', 'not answered: ' + unasked.join(', ')))
      name.append(link)
      row.append(name, verdict, el('td', l.about))
      table.append(row)
    }
    return { server, faults: on.join(';') }
  }
  $('filter').addEventListener('change', () => history.replaceState(null, '', '#' + new URLSearchParams(show())))
  $('filter').addEventListener('submit', e => e.preventDefault())
  $('mine').hidden = false
  show()
}
