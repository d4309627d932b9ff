package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/racecmd"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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

// defaultTimeout is longer in tests, whose machine may stand still.
var defaultTimeout = 5 * time.Second

func (a *app) rootCommand() *cobra.Command {
	asked := false // --version was given
	root := &cobra.Command{
		Use:           "setnxlock",
		Short:         "Run a command under a Redis lock, on any Redis since 1.2",
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
	f.Var(&a.redis, "redis", "the server's `ADDRESS`: host:port, redis://..., rediss://..., or a socket [$SETNXLOCK_REDIS]")
	f.StringVar(&a.user, "user", "", "log in as the ACL user `NAME`")
	f.StringVar(&a.passwordFile, "password-file", "", "read the password from the first line of `FILE` [or $SETNXLOCK_PASSWORD]")
	f.StringVar(&a.caFile, "tls-ca", "", "trust only the authorities in `FILE`, not the system's")
	f.StringVar(&a.certFile, "tls-cert", "", "show the server the certificate in `FILE`")
	f.StringVar(&a.keyFile, "tls-key", "", "the private key of --tls-cert, in `FILE`")
	f.StringVar(&a.serverName, "tls-name", "", "expect `NAME` in the server's certificate")
	f.StringVar(&a.sentinel, "sentinel", "", "ask Sentinels for the master, and follow it: `NAME@host:port,...`")
	f.BoolVar(&a.cluster, "cluster", false, "the servers of --redis are nodes of a cluster")
	use := names()
	f.StringVar(&a.algorithm, "algorithm", "auto", "`NAME`: auto, rw:read, rw:write, redlock, semaphore; more: setnxlock flags")
	f.StringVar(&a.dialect, "dialect", "", "lock as clients of `NAME` on the same keys")
	f.StringVar(&a.prefix, "prefix", "", "put `TEXT` before each KEY")
	duration.Var(f, &a.timeout, "timeout", defaultTimeout, "the time limit of connecting, then of each request")
	for _, name := range []string{"tls-ca", "tls-cert", "tls-key", "tls-name", "prefix"} {
		variableOf(f, name, "SETNXLOCK_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log each event of the lock on stderr")
	f.Lookup("redis").DefValue = defaultRedis // one from the environment may hold a password
	exit.Complete(root, "algorithm", use)
	exit.Complete(root, "dialect", append(dialects(), clients()...))
	for _, name := range []string{"redis", "prefix", "sentinel", "user", "tls-name"} {
		exit.Complete(root, name, nil)
	}

	root.AddCommand(a.runCommand(), a.inspectCommand(), a.surveyCommand(), a.fencesCommand(), a.releaseCommand(), a.repairCommand(), a.doctorCommand(), a.migrateCommand(), a.demoCommand(), racecmd.Command(a.in, a.out, a.errs), a.flagsCommand(), a.versionCommand(), a.manCommand())
	exit.Fit(root)
	return root
}

// onServer returns a key with its prefix.
func (a *app) onServer(key string) (string, error) {
	if key == "" {
		return "", exit.Misuse("the key is empty", "")
	}
	prefix := a.prefix
	told := append(strings.Split(os.Getenv("SETNXLOCK_KEYS"), "\n"), os.Getenv("SETNXLOCK_KEY"))
	if slices.Contains(told, key) && strings.HasPrefix(key, prefix) && a.flags != nil && !a.flags.Changed("prefix") {
		prefix = "" // a COMMAND's keys have that of the variable
	}
	if a.key == "" {
		a.key = prefix + key
	}
	return prefix + key, nil
}

// lockOptions returns the Locker's options, by the flags. Keys have their prefix already.
func (a *app) lockOptions() compat.Options {
	o := compat.Options{Timeout: a.timeout, Observer: a.observer, Hold: a.hold}
	if a.hurries() {
		o.Timeout = defaultTimeout // the first check of all servers
	}
	if a.verbose {
		o.Observer = compat.Slog(a.log())
		if a.observer != nil {
			o.Observer = observeBoth(o.Observer, a.observer)
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
