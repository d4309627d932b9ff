module github.com/setnxlock/setnxlock/compat/race/handbook

go 1.26.0

require (
	github.com/setnxlock/setnxlock v0.0.0
	github.com/yuin/goldmark v1.8.7
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/benbjohnson/clock v1.3.5 // indirect
	github.com/gomodule/redigo v1.9.3 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
)

replace github.com/setnxlock/setnxlock => ../../..
