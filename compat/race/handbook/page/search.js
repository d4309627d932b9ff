// Looks for the words of the question in the sections of the docs: all of them must be there, at the
// beginning of a word. A title counts more than a text.
'use strict'
{
  const box = document.getElementById('q'), found = document.getElementById('found')
  const fold = s => s.toLowerCase()
  const sections = self.SECTIONS.map(s => ({ ...s, title: fold(s.p + ' ' + s.t), text: fold(s.x) }))
  const starts = (text, word) => {
    for (let i = text.indexOf(word); i >= 0; i = text.indexOf(word, i + 1)) if (i === 0 || !/[\p{L}\p{N}]/u.test(text[i - 1]) || !/^[\p{L}\p{N}]/u.test(word)) return i
    return -1
  }
  const snippet = (s, words) => {
    const p = document.createElement('small')
    const at = Math.max(0, ...words.map(w => starts(s.text, w)))
    const from = Math.max(0, s.x.lastIndexOf(' ', at - 60) + 1)
    let text = (from > 0 ? '… ' : '') + s.x.slice(from, from + 190) + (s.x.length > from + 190 ? ' …' : '')
    for (;;) {
      const hits = words.map(w => [starts(fold(text), w), w.length]).filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0])
      if (!hits.length) break
      const [i, n] = hits[0], mark = document.createElement('mark')
      mark.textContent = text.slice(i, i + n)
      p.append(text.slice(0, i), mark)
      text = text.slice(i + n)
    }
    p.append(text)
    return p
  }
  const search = () => {
    const words = fold(box.value).split(/\s+/).filter(w => w)
    found.replaceChildren()
    if (!words.length) return
    const hits = []
    for (const s of sections) {
      let score = 0
      for (const w of words) {
        const inTitle = starts(s.title, w) >= 0, inText = starts(s.text, w) >= 0
        if (!inTitle && !inText) { score = 0; break }
        score += inTitle ? 10 : 1
      }
      if (score) hits.push([score, s])
    }
    hits.sort((a, b) => b[0] - a[0])
    const said = document.createElement('p')
    said.textContent = hits.length === 1 ? '1 section' : hits.length + ' sections' + (hits.length > 20 ? ', the best 20' : '')
    const list = document.createElement('ol')
    for (const [, s] of hits.slice(0, 20)) {
      const item = document.createElement('li'), link = document.createElement('a')
      link.href = s.f
      link.textContent = s.p === s.t ? s.t : s.p + ': ' + s.t
      item.append(link, document.createElement('br'), snippet(s, words))
      list.append(item)
    }
    found.append(said, list)
  }
  box.addEventListener('input', search)
  document.getElementById('search').addEventListener('submit', e => { e.preventDefault(); found.querySelector('a')?.click() })
  document.addEventListener('keydown', e => {
    if (e.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { e.preventDefault(); box.focus() }
    if (e.key === 'Escape' && document.activeElement === box) { box.value = ''; search() }
  })
  const asked = /^#q=(.*)$/.exec(location.hash) // a search can be linked to
  if (asked) { box.value = decodeURIComponent(asked[1]); search() }
}
