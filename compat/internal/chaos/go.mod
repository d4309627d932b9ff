module github.com/setnxlock/setnxlock/compat/internal/chaos

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/gomodule/redigo v1.9.3
	github.com/setnxlock/setnxlock v0.0.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
)

replace github.com/setnxlock/setnxlock => ../../..
