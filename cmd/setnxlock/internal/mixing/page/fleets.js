// Two menus filter the tables, and the one row that is left is the answer. The address keeps the question.
'use strict'
{
  const $ = id => document.getElementById(id), fleets = [...document.querySelectorAll('.fleet')], menus = [$('one'), $('other')]
  for (const menu of menus) {
    for (const [label, side] of [['this library’s', 'ours/'], ['in the field', 'theirs/']]) {
      const group = document.createElement('optgroup')
      group.label = label
      for (const f of fleets) if (f.dataset.name.startsWith(side)) group.append(new Option(f.id, f.dataset.name))
      menu.append(group)
    }
  }
  const asked = new URLSearchParams(location.hash.slice(1)), names = fleets.map(f => f.dataset.name)
  const known = (name, otherwise) => names.includes(name) ? name : otherwise
  $('one').value = known(asked.get('one'), fleets.find(f => f.id === decodeURIComponent(location.hash.slice(1)))?.dataset.name ?? 'theirs/redis-py-2.9')
  $('other').value = known(asked.get('other'), asked.has('one') || !location.hash ? 'ours/tx:guarded' : '')
  if (asked.has('one') && !asked.get('other')) $('other').value = ''
  const show = () => {
    const [one, other] = menus.map(m => m.value)
    let row
    for (const f of fleets) {
      f.hidden = f.dataset.name !== one
      f.open = !f.hidden
      for (const r of f.querySelectorAll('tr[data-name]')) {
        r.hidden = other !== '' && r.dataset.name !== other
        if (!f.hidden && r.dataset.name === other) row = r
      }
    }
    const mine = fleets.find(f => !f.hidden), safe = mine.querySelectorAll('td.holds').length
    $('answer').textContent = row ? row.lastElementChild.textContent : `${mine.id} may share a key with ${safe} of these ${fleets.length} fleets.`
    $('steps').hidden = !row
    if ($('show')) $('show').hash = encodeURIComponent('fleets=' + one + '+' + other)
    $('steps').querySelector('code').textContent = `setnxlock race mixing --a ${one} --b ${other}`
    return { one, other }
  }
  $('pair').addEventListener('change', () => history.replaceState(null, '', '#' + new URLSearchParams(show())))
  $('pair').addEventListener('submit', e => e.preventDefault())
  $('pair').hidden = false
  show()
}
