package view

import (
	"testing"
)

func TestMermaid(t *testing.T) {
	for name, tr := range savedTraces(t) {
		golden(t, name+".mmd", Mermaid(tr))
	}
}
