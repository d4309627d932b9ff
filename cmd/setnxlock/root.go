package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/racecmd"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `setnxlock runs a command while it holds a lock in Redis: of all machines that use
the same key, one at a time runs its command. It works on any Redis
since 1.2, on proxies without transactions, and where Lua is forbidden: it asks
the server what it can do and uses the safest lock that works there.

A lock is a lease: it ends by itself after its TTL unless it is renewed, so a
machine that dies blocks the others no longer than that. A lease can be lost, if
the server forgets it or the network breaks: setnxlock then stops the command.`

const rootExamples = `  setnxlock run nightly-report -- ./report.sh
  setnxlock run --try --redis redis://:secret@10.0.0.5:6379/2 nightly-report -- ./report.sh
  setnxlock inspect nightly-report
  setnxlock doctor
  setnxlock demo`

// options are the flags of every command that connects to a server.
type options struct {
	redis     addresses
	sentinel  string
	cluster   bool
	algorithm string
	dialect   string
	prefix    string
	timeout   time.Duration
	verbose   bool
	secrets
	flags *pflag.FlagSet // these
	key   string         // as it stands on the server: the first that the command was given
}

const defaultRedis = "127.0.0.1:6379"

// defaultTimeout is longer where tests run the command on a machine that may stand still.
var defaultTimeout = 5 * time.Second

func (a *app) rootCommand() *cobra.Command {
	asked := false // --version was given
	root := &cobra.Command{
		Use:           "setnxlock",
		Short:         "Run a command under a Redis lock, on any Redis since 1.2",
		Long:          rootHelp,
		Example:       rootExamples,
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) },

		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				_, err := fmt.Fprintln(a.out, "setnxlock", version())
				return err
			}
			return exit.Help(cmd, nil)
		},
	}
	root.SetHelpFunc(help)
	root.Flags().BoolVar(&asked, "version", false, "version for setnxlock")
	root.SetFlagErrorFunc(exit.Usage)

	f := root.PersistentFlags()
	a.flags = f
	if list, given := os.LookupEnv(addressVariable); given {
		a.redis.list = strings.Split(list, ",")
	}
	f.Var(&a.redis, "redis",
		"the server, or, given several times or with commas between, the servers of a quorum (--algorithm redlock) or nodes of a cluster (--cluster): `ADDRESS` is host:port, redis://[user:password@]host:port[/db], rediss:// for TLS, or unix:///path[?db=N]; $SETNXLOCK_REDIS is used if it is not given")
	f.StringVar(&a.user, "user", "", "log in as the ACL user `NAME`, where the address has no password of its own")
	f.StringVar(&a.passwordFile, "password-file", "", "the first line of `FILE` is the password, where the address has none of its own: nobody sees it in ps; $SETNXLOCK_PASSWORD is used if it is not given")
	f.StringVar(&a.caFile, "tls-ca", "", "believe certificates that an authority in `FILE` (PEM) has signed, and no others; without it, the system's")
	f.StringVar(&a.certFile, "tls-cert", "", "show the server the certificate in `FILE` (PEM)")
	f.StringVar(&a.keyFile, "tls-key", "", "the private key of --tls-cert, in `FILE` (PEM)")
	f.StringVar(&a.serverName, "tls-name", "", "the server's certificate is made out to `NAME`, not to the host of --redis")
	f.StringVar(&a.sentinel, "sentinel", "",
		"ask these Sentinels for the server, and follow a failover: `NAME@host:port,...` with the name of the master; user, password, database and TLS are those of --redis")
	f.BoolVar(&a.cluster, "cluster", false, "the servers of --redis are nodes of a Redis Cluster: find the one that has the key, and follow it")
	use := names()
	f.StringVar(&a.algorithm, "algorithm", "auto",
		"the lock: `NAME` is auto, a family ("+strings.Join(locks.Families(), ", ")+"), redlock (a majority of several servers), rw:read or rw:write (readers together, a writer alone), bridge (while a fleet moves: setnxlock migrate), or a variant: "+strings.Join(variants(use), ", "))
	f.StringVar(&a.dialect, "dialect", "",
		"how the clients that share the keys write their locks, the same for all of them: `NAME` is seconds, float, millis or nanos, for a getset lock, or a client in the field, redis-py-2.9, jedis-lock, redis-mutex, ...; setnxlock survey names those it finds")
	f.StringVar(&a.prefix, "prefix", "", "`TEXT` that is put before the key")
	duration.Var(f, &a.timeout, "timeout", defaultTimeout,
		"how long connecting, from its beginning to the server's first answer, and each request after that may take; unless it is given, a step on one server of a quorum (--algorithm redlock) may take "+redlock.DefaultTimeout.String())
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log what happens to the lock, on stderr")
	f.Lookup("redis").DefValue = defaultRedis // one from the environment may hold a password
	exit.Complete(root, "algorithm", use)
	exit.Complete(root, "dialect", append(dialects(), clients()...))
	for _, name := range []string{"redis", "prefix", "sentinel", "user", "tls-name"} {
		exit.Complete(root, name, nil)
	}

	root.AddCommand(a.runCommand(), a.inspectCommand(), a.surveyCommand(), a.fencesCommand(), a.releaseCommand(), a.repairCommand(), a.doctorCommand(), a.migrateCommand(), a.demoCommand(), racecmd.Command(a.in, a.out, a.errs), a.versionCommand(), a.manCommand())
	exit.Fit(root)
	return root
}

// variants are those of the names that stand for one plain lock.
func variants(names []string) []string {
	var list []string
	for _, name := range names {
		if l, ok := locks.Get(name); ok && l.New != nil && l.Family() != "rw" {
			list = append(list, name)
		}
	}
	return list
}

// onServer is a key as it stands on the server.
func (a *app) onServer(key string) (string, error) {
	if key == "" {
		return "", exit.Because(exit.Wrong, errors.New("the key is empty"), "")
	}
	if a.key == "" {
		a.key = a.prefix + key
	}
	return a.prefix + key, nil
}

// lockOptions are the Locker's, as the flags have them. Keys have their prefix already.
func (a *app) lockOptions() compat.Options {
	o := compat.Options{Timeout: a.timeout, Observer: a.observer}
	if a.verbose {
		o.Observer = compat.Slog(a.log())
		if a.observer != nil {
			o.Observer = both(o.Observer, a.observer)
		}
	}
	return o
}

func (a *app) log() *slog.Logger {
	level := slog.LevelWarn + 100 // nothing
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(scrubbing{a.errs}, &slog.HandlerOptions{Level: level}))
}

// scrubbing writes texts without the passwords of the URLs in them.
type scrubbing struct{ w io.Writer }

func (s scrubbing) Write(p []byte) (int, error) {
	_, err := io.WriteString(s.w, scrubbed(string(p)))
	return len(p), err
}
