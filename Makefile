# The commands of setnxlock. Each needs Go alone, but for the tests: they start a
# real redis-server, look at pages in chromium and fetch Mermaid with npm (.ci/run
# installs all three from Debian's packages), and `make lint` fetches staticcheck.

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s

.PHONY: demo test race fuzz bench lint install

## demo: the locks at work, on the embedded old Redis
demo:
	@$(GO) run ./cmd/setnxlock demo

## test: everything, on the embedded servers, a real redis-server, and the addresses in SETNXLOCK_TEST_REDIS
test:
	$(GO) vet ./...
	$(GO) test ./...

## race: under the race detector; of the explorer, which is slow under it and runs on one goroutine, a part
race:
	$(GO) test -race $$($(GO) list ./... | grep -v '/compat/race$$')
	$(GO) test -race -run 'Check|Fork|Pinned|Broken|Schedule|Timeline|JSON' ./compat/race

## fuzz: the parsers of what foreign clients write, and of handles, FUZZTIME each
fuzz:
	$(GO) test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./getsetlock
	$(GO) test -run '^$$' -fuzz FuzzTimestamp -fuzztime $(FUZZTIME) ./txlock
	$(GO) test -run '^$$' -fuzz FuzzStamp -fuzztime $(FUZZTIME) ./compat/dialect
	$(GO) test -run '^$$' -fuzz FuzzHandle -fuzztime $(FUZZTIME) ./compat

## bench: what a lock costs, as a ratio to two PINGs on the same connection
bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

## lint: gofmt, vet and staticcheck
lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "these files want gofmt"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

## install: the command, into GOBIN
install:
	$(GO) install ./cmd/setnxlock
