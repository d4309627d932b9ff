// Package view shows what package race found: a trace as a timeline for a
// terminal, as a Mermaid diagram and as a page to step through; many of them as
// a web site; and the guarantees as Markdown.
//
// It only reads: everything that a picture needs is in the trace.
package view
