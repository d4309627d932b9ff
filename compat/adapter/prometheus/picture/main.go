// Command picture takes the picture in docs/observing.md anew: a redis-server, a program whose
// locks on it are counted, a Prometheus that asks it each second, and Chromium that opens a page of
// that Prometheus.
//
//	go run ./picture ../../../docs/observing.png
//
// It takes three minutes, and wants redis-server, prometheus and chromium on the PATH.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/prometheus"
	"github.com/setnxlock/setnxlock/txlock"
)

// shown is what the page asks for, and span how much of it one sees.
var shown = []string{
	`sum by (lock) (increase(setnxlock_lost_total[30s]))`,
	`histogram_quantile(0.99, sum by (le, lock) (rate(setnxlock_wait_seconds_bucket[30s])))`,
}

const span = 2 * time.Minute

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: picture FILE.png")
	}
	file, err := filepath.Abs(os.Args[1])
	if err == nil {
		err = take(context.Background(), file)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func take(ctx context.Context, file string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "setnxlock-picture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	server, endServer, err := start(func(port string) *exec.Cmd {
		return exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	})
	if err != nil {
		return err
	}
	defer endServer()
	registry := client.NewRegistry()
	if err := work(ctx, server, registry); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tell(w, registry) })) //nolint:errcheck // it ends with l

	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: setnxlock\n    static_configs: [{targets: ['%s']}]\n", l.Addr())
	if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
		return err
	}
	address, end, err := start(func(port string) *exec.Cmd {
		return exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:"+port)
	})
	if err != nil {
		return err
	}
	defer end()
	log.Printf("three locks, each wanted by three goroutines; Prometheus asks at %s", address)
	time.Sleep(span + 30*time.Second) // the rates look thirty seconds back

	page := url.Values{}
	for n, expr := range shown {
		for name, value := range map[string]string{"expr": expr, "tab": "0", "range_input": "2m"} {
			page.Set(fmt.Sprintf("g%d.%s", n, name), value)
		}
	}
	out, err := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1570", "--virtual-time-budget=20000",
		"--user-data-dir="+filepath.Join(dir, "chromium"), "--screenshot="+file, "http://"+address+"/classic/graph?"+page.Encode()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("chromium: %w\n%s", err, out)
	}
	return nil
}

// work uses locks until ctx ends: each is wanted by three goroutines, and the key of one is deleted now and then.
func work(ctx context.Context, server string, r client.Registerer) error {
	metrics, err := prometheus.New(r, nil)
	if err != nil {
		return err
	}
	pool := &redis.Pool{MaxIdle: 16, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", server) }}
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{Observer: metrics.Observe})
	for n, key := range []string{"import", "mail", "report"} {
		for range 3 {
			go func() {
				for ctx.Err() == nil {
					err := locks.Do(ctx, key, 4*time.Second, func(ctx context.Context) error {
						select {
						case <-ctx.Done():
						case <-time.After(rand.N(time.Duration(n+1) * 1500 * time.Millisecond)):
						}
						return context.Cause(ctx)
					})
					if err != nil && ctx.Err() == nil && !errors.Is(err, compat.ErrLost) {
						log.Printf("%s: %v", key, err)
					}
				}
			}()
		}
	}
	c, err := pool.Dial()
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			time.Sleep(37 * time.Second)
			if _, err := c.Do("DEL", "import"); err != nil {
				log.Print(err)
			}
		}
	}()
	return nil
}

func tell(w http.ResponseWriter, r client.Gatherer) {
	families, err := r.Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	to := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := to.Encode(f); err != nil {
			return // Prometheus has gone
		}
	}
}

// start starts a server on a port that is free, and waits until it takes connections.
func start(command func(port string) *exec.Cmd) (address string, end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	cmd := command(port)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			log.Print(err)
		}
		cmd.Wait() //nolint:errcheck // it was told to end
	}
	for range 100 {
		var c net.Conn
		if c, err = net.Dial("tcp", address); err == nil {
			return address, end, c.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	end()
	return "", nil, fmt.Errorf("%s: %w", cmd.Path, err)
}
