package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/spf13/cobra"
)

const runHelp = `Takes the lock KEY, runs COMMAND while it renews the lock, and releases the lock when
COMMAND has ended. Only COMMAND writes to stdout.

Without --wait, setnxlock waits for KEY without limit, but not for a server that is away.
With --wait it waits that long for both: 90s, 5m, or plain seconds.

Several KEYs are one lock: COMMAND runs when setnxlock holds all of them. Their order
does not matter. While it waits for one it holds none of the others.

With --limit N up to N clients hold KEY at once, on Redis 2.2 and later. All clients
must give the same N: a client with another N waits until KEY is free. Each holder has
a slot, the number before the colon of $SETNXLOCK_TOKEN. Fences grow by slot: the
storage remembers one for each.

A cron job on many machines should run once. --hold 10m keeps the lock for ten minutes
after it was taken, even if COMMAND ends, fails, or this machine dies. Without it a
machine whose clock is a minute late finds the lock free and runs the job again.

COMMAND runs in its own process group, which gets the terminal if there is one.
setnxlock passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH on to
that group; the first four end a wait. Ctrl-Z stops setnxlock and COMMAND. The lease is
not renewed meanwhile: if it runs out before they continue, setnxlock ends COMMAND.

COMMAND finds in its environment
  SETNXLOCK_KEY    the key as it stands on the server, prefix included; of
                   several the first that was given
  SETNXLOCK_KEYS   all of them, one on a line
  SETNXLOCK_TOKEN  the key's value when COMMAND started; it releases the lock as
                   long as COMMAND runs. A value that is not text: the handle
  SETNXLOCK_HANDLE key and token in one word, for setnxlock release --token, for
                   setnxlock run --adopt, and for a Go program's AdoptHandle
  SETNXLOCK_FENCE  with --fence: a number that grows with every acquisition of
                   the key. COMMAND's storage should refuse smaller ones.
                   Without --fence it is not set: ${SETNXLOCK_FENCE:?} fails

A lease is lost if the server forgets it, if the server can't be reached for a whole
TTL, or if a client removes the key. COMMAND's group then gets SIGTERM, and SIGKILL
after the grace period. Another client may hold the lock meanwhile; --grace 0s kills at
once.

If setnxlock itself is killed (kill -9, the OOM killer), nobody renews the lock: it
is free after the TTL. On Linux the kernel then kills COMMAND at once, but not the
processes that COMMAND started, nor a COMMAND that changes its privileges (sudo).
Begin a script's last command with exec, so that no shell is in between. On Windows
everything that COMMAND started ends too. On other systems COMMAND goes on.

On Windows there are no signals and no job control: Ctrl-C, and the end of the
console, reach COMMAND as Ctrl-Break. When the lock is lost COMMAND gets
Ctrl-Break, which a program without a console does not receive; after the grace
period it is terminated with everything that it started.

SIGHUP under nohup, and SIGINT and SIGQUIT in a background job of a script, are
ignored by COMMAND too. Any other signal that was ignored has its default action there.

COMMAND's background processes run without the lock once COMMAND has ended. With
--detach the lock stays held after COMMAND has succeeded, and another process can go on
with it by --adopt before the TTL ends. That process ends the first one's --hold, unless it
has one of its own, which counts from then.`

const runStatus = `  0      COMMAND succeeded, and the lock was held until it ended. Any other
         status of COMMAND is passed on as it is.
` + statusHelp + `
  75     The lock was not obtained in time. --busy-status changes the number.
  76     The lock was lost while COMMAND ran, whatever COMMAND's own status; the
         release may be the first to notice. With --adopt, the lock was no
         longer held and COMMAND was not started.
  126    COMMAND was found but could not be executed.
  127    COMMAND was not found.
  128+N  Signal N ended COMMAND, or setnxlock while it waited.`

const runExamples = `  setnxlock run nightly-report -- ./report.sh --year 2012
  setnxlock run --try nightly-report -- ./report.sh || echo "it runs elsewhere"
  0 2 * * *  setnxlock run -q --try --hold 10m nightly -- ./report.sh  # cron
  setnxlock run --wait 1m --ttl 10s deploy -- make deploy
  setnxlock run accounts:1 accounts:2 -- ./transfer.sh
  setnxlock run --limit 3 import -- ./import.sh
  setnxlock run --detach deploy -- sh -c 'ssh host2 at-job "$SETNXLOCK_HANDLE"'
  setnxlock run --adopt "$SETNXLOCK_HANDLE" -- ./second-half.sh
  setnxlock run --fence deploy -- sh -c './deploy "${SETNXLOCK_FENCE:?}"'`

type runFlags struct {
	ttl        time.Duration
	wait       wait
	try        bool
	grace      time.Duration
	busyStatus int
	adopt      string
	handle     compat.Handle // what adopt says
	detach     bool
	unsafe     bool
	shared     bool
	metrics    string // a file

	keepPassword   bool
	waitsForServer bool // --wait was given: not only for the lock
}

func (a *app) runCommand() *cobra.Command {
	f := runFlags{wait: forever}
	cmd := &cobra.Command{
		Use:         "run KEY... [flags] -- COMMAND [ARG...]",
		Short:       "Run a command while holding a lock",
		Long:        runHelp,
		Example:     runExamples,
		Annotations: map[string]string{"status": runStatus},

		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		Args: func(cmd *cobra.Command, args []string) error { return runArgs(cmd, args, f.adopt != "") },
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.validRun(cmd, &f)
			if err == nil && f.shared {
				err = a.flags.Set("algorithm", "rw:read") // so that hints have it
			}
			if err != nil {
				return exit.Usage(cmd, err)
			}
			dash := cmd.ArgsLenAtDash()
			return a.measured(args[:dash], f, func() error { return a.run(args[:dash], args[dash:], f) })
		},
	}
	duration.Var(cmd.Flags(), &f.ttl, "ttl", 30*time.Second, "how long the lock lasts if this machine dies")
	variableOf(cmd.Flags(), "ttl", "SETNXLOCK_TTL")
	cmd.Flags().Var(&f.wait, "wait", "wait that long for lock and server; 0: try once")
	cmd.Flags().BoolVar(&f.try, "try", false, "try once: --wait 0")
	duration.Var(cmd.Flags(), &f.grace, "grace", 5*time.Second, "from SIGTERM to SIGKILL when the lock is lost")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "say only what went wrong, not that KEY is held")
	cmd.Flags().IntVarP(&a.holders, "limit", "n", 0, "let `N` hold KEY at once, and no more")
	cmd.Flags().BoolVar(&f.shared, "shared", false, "share KEY with other --shared runs: --algorithm rw:read")
	cmd.Flags().IntVar(&f.busyStatus, "busy-status", statusBusy, "exit with `STATUS` if KEY is held; 0 says nothing")
	cmd.Flags().BoolVar(&a.fence, "fence", false, "draw a fence, or don't run")
	variableOf(cmd.Flags(), "fence", "SETNXLOCK_FENCES")
	duration.Var(cmd.Flags(), &a.hold, "hold", 0, "keep the lock that long, also when COMMAND has ended")
	cmd.Flags().StringVar(&f.adopt, "adopt", "", "go on with the detached lock that `HANDLE` names")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the lock held when COMMAND has succeeded")
	cmd.Flags().StringVar(&f.metrics, "metrics-file", "", "add this run to the metrics in `FILE`")
	cmd.Flags().StringVar(&a.owner.name, "owner", "", "inspect shows `NAME` as the owner; default: COMMAND's")
	cmd.Flags().BoolVar(&f.keepPassword, "keep-password", false, "leave $SETNXLOCK_PASSWORD in COMMAND's environment")
	cmd.Flags().BoolVar(&f.unsafe, "unsafe", false, "run where doctor says UNSAFE, and don't say so")
	return cmd
}

// runArgs demands the "--": without it a flag of COMMAND's would be taken for
// one of ours.
func runArgs(cmd *cobra.Command, args []string, adopts bool) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0:
		return errors.New("run needs a KEY and a COMMAND")
	case dash < 0:
		return errors.New(`run needs "--" between KEY and COMMAND`)
	case dash == 0 && !adopts:
		return errors.New(`run needs a KEY before "--"`)
	case dash > 0 && adopts:
		return errors.New("--adopt takes no KEY: the handle names it")
	case len(args) == dash:
		return errors.New(`run needs a COMMAND after "--"`)
	}
	return nil
}

func (a *app) validRun(cmd *cobra.Command, f *runFlags) error {
	switch {
	case positive("ttl", f.ttl) != nil:
		return positive("ttl", f.ttl)
	case a.hold < 0:
		return fmt.Errorf("--hold must not be negative, got %v", a.hold)
	case f.grace < 0:
		return fmt.Errorf("--grace must not be negative, got %v", f.grace)
	case f.busyStatus < 0 || f.busyStatus > 255:
		return fmt.Errorf("--busy-status must be between 0 and 255, got %d", f.busyStatus)
	case cmd.Flags().Changed("limit") && (a.holders < 1 || a.holders > semaphore.Most):
		return fmt.Errorf("--limit must be a number from 1 to %d, got %d", semaphore.Most, a.holders)
	case f.try && cmd.Flags().Changed("wait") && f.wait != 0:
		return errors.New("--try and --wait exclude each other")
	case f.shared && cmd.Flags().Changed("algorithm"):
		return errors.New("--shared and --algorithm exclude each other")
	case a.quiet && cmd.Flags().Changed("verbose"):
		return errors.New("--quiet and --verbose exclude each other")
	case a.fence && cmd.Flag("algorithm").Value.String() == "redlock":
		return errors.New("--fence does not go with redlock: a majority of servers can't count")
	}
	if f.try {
		f.wait = 0
	}
	f.waitsForServer = cmd.Flags().Changed("wait") && f.wait != 0
	if f.adopt == "" {
		return nil
	}
	var err error
	f.handle, err = handle(f.adopt)
	return err
}

// run obtains the lock, runs the command and releases the lock.
func (a *app) run(keys []string, command []string, f runFlags) error {
	path, err := lookUp(command[0])
	if err != nil {
		return err // before anybody waits for a command that can't run
	}
	a.cautious = !f.unsafe
	signals := catch()
	a.owner.runs(command[0])
	a.observer = observeBoth(a.observer, (&outages{say: a.say}).observe)

	held, err := a.obtain(keys, f, signals)
	if err != nil {
		return err
	}
	defer held.at.Close()

	lock := held.Lock
	if a.fence && lock.Fence() == 0 {
		a.discard(held, signals)
		return exit.Because(statusUnavailable, fmt.Errorf("this lock on %q draws no fence", lock.Key()), a.unsafeHint())
	}
	child, err := start(path, command, environment(held, f.keepPassword), a.in, a.out, a.errs)
	if err != nil {
		a.discard(held, signals)
		return exit.Because(statusNotExec, fmt.Errorf("%s can't be executed: %w", command[0], systemError(err)), "")
	}
	status, lost := child.supervise(signals, &lease{Lock: lock, ttl: f.ttl, last: time.Now(), host: held.at.name()}, f.grace, a.say)
	if f.detach && status == 0 && !lost {
		return a.detach(held, signals)
	}
	if lost { // nothing is sent for it any more
		return exit.With(statusLost)
	}
	if err := a.release(held, signals); errors.Is(err, compat.ErrLost) {
		return exit.With(statusLost)
	}
	return exit.With(status)
}

// lookUp finds the command as a shell does, with a shell's statuses.
func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		return "", exit.Because(statusNotFound, fmt.Errorf("%s is in the current folder, which PATH names", name), "write ./"+name)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", exit.Because(statusNotExec, fmt.Errorf("%s can't be executed: %w", name, systemError(err)), "")
	}
	hint := ""
	if strings.Contains(name, " ") {
		hint = "for a command line in one argument: -- sh -c " + quoted(name)
	}
	return "", exit.Because(statusNotFound, fmt.Errorf("%s was not found", name), hint)
}

// systemError returns the system's error alone, without the call and the name around it.
func systemError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, os.ErrPermission) {
		return syscall.EACCES
	}
	return err
}

// held is an obtained lock and its target.
type held struct {
	*compat.Lock
	*target
}

// obtain connects, chooses the lock and waits for it. A signal ends it at any point.
func (a *app) obtain(keys []string, f runFlags, signals *signals) (*held, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := signals.endWaiting(cancel)

	h, err := a.reach(ctx, keys, f)
	stop()
	var asked *exit.Failure
	if errors.As(context.Cause(ctx), &asked) { // a signal, whatever the wait made of it
		if err == nil {
			a.discard(h, signals)
			h.at.Close()
		}
		return nil, asked
	}
	return h, err
}

// reach connects and waits, as long as --wait says. If it says so in words, a server that is
// not there, or not ready, is waited for as well.
func (a *app) reach(ctx context.Context, keys []string, f runFlags) (*held, error) {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if f.wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, time.Duration(f.wait))
	}
	defer cancel()
	line := a.waitingLine()
	defer line.wipe()
	var away error
	asked := false // anew, what a server was remembered to allow
	for tries := 0; ; tries++ {
		p, err := a.connect(waiting)
		if err == nil {
			var h *held
			if h, err = a.waitFor(ctx, waiting, p, keys, f, line); err == nil {
				return h, nil
			}
			p.Close()
			if !asked && a.remembered().contradicted.Load() && waiting.Err() == nil {
				asked = true
				continue
			}
		}
		late := waiting.Err() != nil && ctx.Err() == nil
		if late && errors.Is(err, context.DeadlineExceeded) { // --wait is over in the midst of it
			err = cmp.Or(away, error(errUnanswered{}))
		}
		if !f.waitsForServer || ctx.Err() != nil || !passes(err) {
			return nil, err
		}
		if away = err; late {
			why := a.explain(err)
			return nil, exit.Because(why.Status, fmt.Errorf("%w; tried for %v", why.Err, time.Duration(f.wait)), why.Hint)
		}
		why := "waiting for the server: " + sentence(a.explain(err))
		line.says(func(int) string { return why })
		a.log().Info("waiting for the server", "error", err)
		pause(waiting, tries)
	}
}

func (a *app) waitFor(ctx, waiting context.Context, p *deployment, keys []string, f runFlags, line *waitingLine) (*held, error) {
	if f.adopt != "" {
		return a.adopt(waiting, p, f)
	}
	t, err := a.target(waiting, p, keys)
	if err != nil {
		return nil, err
	}
	if f.wait == 0 {
		lock, err := t.locks.TryLock(ctx, t.key, f.ttl)
		if errors.Is(err, compat.ErrHeld) {
			err = a.busy(ctx, t, f)
		}
		return &held{lock, t}, err
	}
	if err := a.nested(waiting, t); err != nil {
		return nil, err
	}
	t.owner = a.owner.text()
	looking, stop := context.WithCancel(ctx)
	var looker sync.WaitGroup
	looker.Go(func() { line.watch(looking, t) })
	lock, err := t.locks.Lock(waiting, t.key, f.ttl)
	stop()
	looker.Wait()
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = a.busy(ctx, t, f)
	}
	return &held{lock, t}, err
}

// adopt goes on with a lock of another process, which has detached it.
func (a *app) adopt(ctx context.Context, p *deployment, f runFlags) (*held, error) {
	switch token := f.handle.Token; {
	case a.holders == 0 && ofSlot(token):
		a.holders = limitBeside(ctx, p.one(), f.handle.Key)
	case strings.HasPrefix(token, "r:") && !strings.HasPrefix(a.algorithm, "rw:"): // only that lock has such tokens
		a.algorithm = "rw:read"
	}
	t, err := a.named(ctx, p, f.handle.Key)
	if err != nil {
		return nil, err
	}
	h := &held{target: t}
	return h, a.byToken(ctx, t, f.handle.Token, func(token string) (err error) {
		h.Lock, err = t.locks.AdoptHandle(ctx, compat.Handle{Key: f.handle.Key, Token: token}, f.ttl)
		return err
	})
}

// handle reads --adopt and --token.
func handle(s string) (compat.Handle, error) {
	var h compat.Handle
	if err := h.UnmarshalText([]byte(s)); err != nil {
		return h, exit.Because(exit.Wrong, err, "take $SETNXLOCK_HANDLE of a command of setnxlock run, or the result of Lock.Detach")
	}
	return h, nil
}

// detach leaves the lock held, for another process to adopt. A signal cuts it short.
func (a *app) detach(held *held, signals *signals) error {
	ctx, done := signals.context()
	defer done()
	h, err := held.Detach(ctx)
	switch {
	case errors.Is(err, compat.ErrLost):
		return a.lostBelow(held, err)
	case err != nil:
		return exit.Because(a.explain(err).Status, fmt.Errorf("the lock on %s should stay held, but whether it does can't be seen: %w", named(held.Key()), err), "")
	}
	a.log().Info("lock detached", "key", h.Key, "handle", h.String(), "until", held.Until())
	return nil
}

// lostBelow ends a run after an unseen loss of its lock.
func (a *app) lostBelow(h *held, err error) error {
	a.say("the lock on %s was lost while the command ran: %s; another client may have run at the same time", named(h.Key()), whyLost(h.at.name(), err))
	return exit.With(statusLost)
}

// environment builds the child's environment: ours without our password, and the variables of the lock.
func environment(lock *held, keepPassword bool) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == passwordVariable && !keepPassword || name == "SETNXLOCK_FENCE" || name == aroundVariable
	})
	env = append(env,
		"SETNXLOCK_KEY="+lock.keys[0],
		"SETNXLOCK_KEYS="+strings.Join(lock.keys, "\n"),
		"SETNXLOCK_TOKEN="+tokenText(lock.Handle()),
		"SETNXLOCK_HANDLE="+lock.Handle().String(),
		aroundVariable+"="+strings.TrimSpace(os.Getenv(aroundVariable)+" "+lock.Handle().String()))
	if n := lock.Fence(); n > 0 {
		env = append(env, "SETNXLOCK_FENCE="+strconv.FormatInt(n, 10))
	}
	return env
}

// tokenText returns a token for environments and terminals. Some clients write bytes (a NUL ends a variable):
// those become the handle, which release and run --adopt accept as well.
func tokenText(h compat.Handle) string {
	if utf8.ValidString(h.Token) && strings.IndexFunc(h.Token, unicode.IsControl) < 0 {
		return h.Token
	}
	return h.String()
}

// release releases the lock, and says so if it can't. A signal cuts it short.
func (a *app) release(h *held, signals *signals) error {
	ctx, done := signals.context()
	defer done()
	err := h.Release(ctx)
	if err != nil {
		a.contradict()
	}
	switch {
	case err == nil:
		h.locks.Close(ctx) //nolint:errcheck // others may still have to be woken, and the process ends now
	case errors.Is(err, compat.ErrLost):
		a.lostBelow(h, err) //nolint:errcheck // the caller has the status
	case a.hold > 0:
		a.say("the lock on %s should stay until %s, but whether it does can't be seen: %v", named(h.Key()), verdict.Moment(h.Until()), sentence(err))
	default:
		a.say("the lock on %s could not be released (it ends by itself at %s): %v",
			named(h.Key()), verdict.Moment(h.Until()), sentence(err))
	}
	return err
}

// forever is an endless wait.
const forever wait = -1

// wait is the flag's value: a duration, or forever.
type wait time.Duration

func (w *wait) Type() string { return "duration" }

func (w *wait) String() string {
	if *w == forever {
		return "forever"
	}
	return time.Duration(*w).String()
}

func (w *wait) Set(s string) error {
	if s == "forever" {
		*w = forever
		return nil
	}
	d, err := duration.Parse(s)
	if err != nil || d < 0 {
		return errors.New(`it must be a duration such as 90, 90s or 5m, or 0, or "forever"`)
	}
	*w = wait(d)
	return nil
}
