package view

import (
	"testing"

	"github.com/setnxlock/setnxlock/internal/traces"
)

func TestMermaid(t *testing.T) {
	for name, tr := range traces.Saved(t, renders) {
		golden(t, name+".mmd", Mermaid(tr))
	}
}
