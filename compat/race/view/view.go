// Package view shows a trace of package race as text: a timeline for a terminal, and a Mermaid diagram for a document.
//
// It only reads: everything that a picture needs is in the trace.
package view
