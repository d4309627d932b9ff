module github.com/setnxlock/setnxlock/compat/race/browser

go 1.25.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/setnxlock/setnxlock v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/gomodule/redigo v1.9.3 // indirect
)

replace github.com/setnxlock/setnxlock => ../../..
