package view

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
)

func TestMermaid(t *testing.T) {
	for name, tr := range tracetest.Read(t, renders) {
		golden(t, name+".mmd", Mermaid(tr))
	}
}
