module github.com/setnxlock/setnxlock

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/benbjohnson/clock v1.3.5
	github.com/gomodule/redigo v1.9.3
	github.com/rogpeppe/go-internal v1.14.1
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.46.0
	golang.org/x/term v0.44.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/tools v0.26.0 // indirect
)
