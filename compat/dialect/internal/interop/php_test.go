package interop

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// The PHP clients are Debian's packages, which stand where their autoloaders look for them: php-symfony-lock,
// php-laravel-framework, with php-cli, php-redis and php-predis. install.sh installs nothing outside of its folder, so that
// a machine without them runs the rest.
var phpClients = map[string]string{
	"symfony_lock.php": "/usr/share/php/Symfony/Component/Lock/autoload.php",
	"laravel_lock.php": "/usr/share/php/Illuminate/autoload.php",
}

// phpMissing says why a PHP client can't be run; "" if it can.
func phpMissing(driver string) string {
	_, err := exec.LookPath("php")
	if err == nil {
		_, err = os.Stat(phpClients[driver])
	}
	if err != nil {
		return driver + ": Debian's package is not installed"
	}
	return ""
}

// runPHP has a driver take its locks on a new server, and returns a connection to that.
func runPHP(t *testing.T, driver string, args ...string) redis.Conn {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skip("not run: " + variable + " is not set; run make interop")
	}
	if why := phpMissing(driver); why != "" {
		t.Skip("not run: " + why)
	}
	s := realredis.Run(t)
	host, port, err := net.SplitHostPort(s.Addr)
	must.Do(t, err)
	out, err := exec.Command("php", append([]string{filepath.Join("drivers", driver), host, port}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", driver, err, out)
	}
	conn := must.Get(redis.Dial("tcp", s.Addr))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// The sorted sets of Symfony's are recognised: the writer's, and the readers'.
func TestInteropSymfony(t *testing.T) {
	t.Parallel()
	conn := runPHP(t, "symfony_lock.php", "report", "docs")
	for key, holders := range map[string]int{"report": 1, "docs": 2} {
		members := map[string]float64{}
		for member, score := range must.Get(redis.StringMap(conn.Do("ZRANGE", key, 0, -1, "WITHSCORES")))(t) {
			members[member] = must.Get(strconv.ParseFloat(score, 64))(t)
		}
		left := time.Duration(must.Get(redis.Int64(conn.Do("PTTL", key)))(t)) * time.Millisecond
		found := dialect.RecogniseSet(key, members, left, time.Now())
		if len(found) != 1 || found[0].Formats()[0] != dialect.Symfony || found[0].Wrong != nil || (time.Until(found[0].Until)-left).Abs() > 10*time.Second {
			t.Errorf("%s: %v with a TTL of %v is recognised as %+v", key, members, left, found)
			continue
		}
		owners := 1
		for _, r := range found[0].Owner {
			if r == ' ' {
				owners++
			}
		}
		if owners != holders {
			t.Errorf("%s is held by %q, want %d", key, found[0].Owner, holders)
		}
	}
}

// The value of Laravel's lock is recognised.
func TestInteropLaravel(t *testing.T) {
	t.Parallel()
	conn := runPHP(t, "laravel_lock.php", "report")
	const key = "laravel_database_laravel_cache:report"
	value := must.Get(redis.String(conn.Do("GET", key)))(t)
	left := time.Duration(must.Get(redis.Int64(conn.Do("PTTL", key)))(t)) * time.Millisecond
	found := dialect.Recognise(key, value, left, time.Now())
	if len(found) == 0 || found[0].Formats()[0] != "laravel-5.8" || found[0].Wrong != nil {
		t.Errorf("%q with a TTL of %v is recognised as %+v", value, left, found)
	}
}
