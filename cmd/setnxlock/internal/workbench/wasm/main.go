//go:build js && wasm

// Package main is the explorer as a browser runs it, in a Worker: the function
// setnxlock takes a question and returns its answer, both in JSON, and calls
// setnxlockProgress meanwhile.
package main

import (
	"context"
	"encoding/json"
	"syscall/js"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
)

func main() {
	js.Global().Set("setnxlock", js.FuncOf(func(_ js.Value, args []js.Value) any {
		return string(workbench.Answer(context.Background(), []byte(args[0].String()), tell))
	}))
	js.Global().Call("setnxlockReady")
	select {}
}

func tell(p workbench.Progress) {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	js.Global().Call("setnxlockProgress", string(b))
}
