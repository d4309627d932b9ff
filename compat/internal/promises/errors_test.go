package promises_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/simulate"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// A network that loses packets at random says nothing about the server behind it.
func TestNetworkFaultsAreNotTheServers(t *testing.T) {
	for name, broken := range map[string]error{
		"closed":  io.EOF,
		"reset":   &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		"timeout": &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, all(false), func(t *testing.T, k kind) {
				wrong, seeds := 0, uint64(60)
				if realredis.UnderRace() {
					seeds = 6
				}
				for seed := range seeds {
					inWorld(t, k, func(w *world) {
						random := rand.New(rand.NewPCG(seed, 1))
						locker, net := w.client(compat.Options{NoRenew: true})
						net.Expect(func(faulty.Message) faulty.Fate {
							switch random.IntN(8) {
							case 0:
								return faulty.Fate{Loss: faulty.LostRequest, Err: broken}
							case 1:
								return faulty.Fate{Loss: faulty.LostReply, Err: broken}
							}
							return faulty.Fate{}
						})
						for range 5 {
							l, err := locker.TryLock(background, w.kind.key, short)
							if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrForeign) {
								if wrong++; wrong == 1 {
									t.Errorf("seed %d: %v", seed, err)
								}
							}
							if err == nil {
								l.Release(background) //nolint:errcheck // it may fail
							}
							pass(2 * short)
						}
					})
				}
				if wrong > 1 {
					t.Logf("%d times with %d seeds", wrong, seeds)
				}
			})
		})
	}
}

// Do says ErrLost if, and only if, the context that its function had said so.
func TestDoSaysThatTheLockWasLost(t *testing.T) {
	ours := errors.New("the work's own error")
	for name, happen := range map[string]func(w *world, net *faulty.Network){
		"nothing":           func(*world, *faulty.Network) {},
		"the server dies":   func(_ *world, net *faulty.Network) { net.Cut() },
		"the keys are gone": func(w *world, _ *faulty.Network) { flush(w) },
		"gone, and another has it": func(w *world, _ *faulty.Network) {
			flush(w)
			rival, _ := w.client(compat.Options{NoRenew: true})
			w.try(rival, time.Hour)
		},
		"the server dies for a moment": func(_ *world, net *faulty.Network) {
			net.Cut()
			time.AfterFunc(time.Second, net.Clear)
		},
		"it comes back after the lease": func(_ *world, net *faulty.Network) {
			net.Cut()
			time.AfterFunc(2*short, net.Clear)
		},
		"the server falls silent": func(_ *world, net *faulty.Network) {
			net.Expect(faulty.Fate{Before: time.Hour}.Always())
		},
	} {
		for result, err := range map[string]error{"nil": nil, "its own error": ours, "the context's cause": context.Canceled} {
			t.Run(name+"/f returns "+result, func(t *testing.T) {
				eachKind(t, all(false), func(t *testing.T, k kind) {
					inWorld(t, k, func(w *world) {
						locker, net := w.client(compat.Options{})
						if beside, err := locker.TryLock(background, w.kind.another(1), short); err != nil { // renewed in the same batch
							t.Fatal(err)
						} else {
							beside.Context()
						}
						var cause error
						caller, cancel := context.WithCancel(background)
						defer cancel()
						got := locker.Do(caller, w.kind.key, short, func(ctx context.Context) error {
							if result == "nil" {
								defer cancel()
							}
							happen(w, net)
							select {
							case <-ctx.Done():
							case <-time.After(long):
							}
							if cause = context.Cause(ctx); err == context.Canceled {
								return cause
							}
							return err
						})
						if lost := errors.Is(cause, compat.ErrLost); errors.Is(got, compat.ErrLost) != lost {
							t.Errorf("the context's cause was %v; Do: %v", cause, got)
						}
						if err == ours && !errors.Is(got, ours) {
							t.Errorf("Do: %v, which hides the work's own error", got)
						}
						net.Clear()
						locker.Close(w.within(time.Minute)) //nolint:errcheck // it waits for what is cleaned up behind the call
					})
				})
			})
		}
	}
}

// flush makes each server forget everything.
func flush(w *world) {
	for _, s := range w.servers {
		s.FlushAll()
	}
}

// A release of unknown outcome may be called again, and is no loss then: nobody
// but us has touched the key.
func TestReleaseAgainIsNoLoss(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
			holder, net := w.client(compat.Options{NoRenew: true})
			rival, _ := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, long)
			pass(time.Second)
			strike(net)
			first := l.Release(background)
			net.Clear()
			if first != nil && !errors.Is(first, compat.ErrUnknown) {
				return sprint("the first release: %v", first)
			}
			if first == nil {
				return ""
			}
			if again := l.Release(background); again != nil && !errors.Is(again, errReleased) {
				return sprint("%v, and then %v", first, again)
			}
			if _, err := rival.TryLock(background, w.kind.key, long); err != nil {
				return sprint("released the second time, and then another client gets %v", err)
			}
			return ""
		})
	})
}

// What is asked of a lock that we have released ourselves says so: it is not lost.
func TestReleasedIsNotLost(t *testing.T) {
	for name, ask := range map[string]func(*compat.Lock) error{
		"release":  func(l *compat.Lock) error { return l.Release(background) },
		"extend":   func(l *compat.Lock) error { return l.Extend(background, long) },
		"hand off": func(l *compat.Lock) error { _, err := handoff(background, l, long); return err },
		"detach":   func(l *compat.Lock) error { _, err := detach(background, l); return err },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, all(false), func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					holder, _ := w.client(compat.Options{NoRenew: true})
					l := w.try(holder, long)
					if err := l.Release(background); err != nil {
						w.Fatal(err)
					}
					if err := ask(l); !errors.Is(err, errReleased) || errors.Is(err, compat.ErrLost) {
						t.Errorf("after our own release: %v", err)
					}
				})
			})
		})
	}
}

// A question is what can be asked of a Locker, or of the lock l that it has.
type question struct {
	name string
	ask  func(ctx context.Context, w *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error)
}

var questions = []question{
	{"TryLock", func(ctx context.Context, w *world, k *compat.Locker, _ *compat.Lock) (*compat.Lock, error) {
		return k.TryLock(ctx, w.kind.another(1), long)
	}},
	{"Lock", func(ctx context.Context, w *world, k *compat.Locker, _ *compat.Lock) (*compat.Lock, error) {
		return k.Lock(ctx, w.kind.another(1), long)
	}},
	{"Extend", func(ctx context.Context, _ *world, _ *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return l, l.Extend(ctx, long)
	}},
	{"hand off", func(ctx context.Context, _ *world, _ *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return handoff(ctx, l, long)
	}},
	{"Adopt", func(ctx context.Context, _ *world, k *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return k.Adopt(ctx, l.Key(), l.Token(), long)
	}},
	{"Inspect", func(ctx context.Context, w *world, k *compat.Locker, _ *compat.Lock) (*compat.Lock, error) {
		_, err := k.Inspect(ctx, w.kind.key)
		return nil, err
	}},
	{"Release", func(ctx context.Context, _ *world, _ *compat.Locker, l *compat.Lock) (*compat.Lock, error) {
		return l, l.Release(ctx)
	}},
}

// ended runs f, and reports whether it has ended after d; then it makes it end.
func ended(net *faulty.Network, d time.Duration, f func() error) (err error, ok bool) {
	done := make(chan struct{})
	go func() { defer close(done); err = f() }()
	select {
	case <-done:
		return err, true
	case <-time.After(d):
		net.Clear()
		<-done
		return err, false
	}
}

// hangs are the ways in which a server does not answer.
var hangs = map[string]func(n *faulty.Network){
	"dial": func(n *faulty.Network) { n.OnDial(faulty.Hang) },
	"handshake": func(n *faulty.Network) { // it notices its socket's timeout
		n.OnDial(func(ctx context.Context) error {
			<-ctx.Done()
			return &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		})
	},
	"reply": func(n *faulty.Network) {
		n.Expect(faulty.Fate{Before: time.Hour}.Always())
	},
}

// A caller that cancels gets context.Canceled, and one whose deadline has
// passed that; a limit of ours is neither, but has a name.
func TestWhoGaveUp(t *testing.T) {
	gone := errors.New("the user has left")
	for _, q := range questions {
		for hang, hangs := range hangs {
			for _, who := range []string{"cancel", "cancel because of a deadline", "deadline", "deadline with a cause", "our limit", "our limit, with a context that can end"} {
				t.Run(q.name+"/"+hang+" hangs/"+who, func(t *testing.T) {
					kinds := []kind{all(false)[1], all(false)[5], all(false)[7], composites(false)[1], composites(false)[8], quorum("redlock", false, []string{"2.2", "2.4", "2.6"}, getsetlock.Guarded{}, txlock.Renamed{}, txlock.Renamed{})}
					kinds = append(kinds, sharing(kinds[0]), sharing(kinds[1]), sharing(kinds[2]))
					if who != "our limit" { // a Get that waits needs a context that ends
						kinds = append(kinds, prompt(kinds[0]), prompt(sharing(kinds[1])))
					}
					eachKind(t, kinds, func(t *testing.T, k kind) {
						inWorld(t, k, func(w *world) {
							o := compat.Options{NoRenew: true, Timeout: time.Hour}
							if strings.HasPrefix(who, "our limit") {
								o.Timeout = 2 * time.Second
							}
							locker, net := w.client(o)
							l := w.try(locker, medium)
							pass(forgotten)
							ctx, cancel := context.WithCancelCause(background)
							defer cancel(nil)
							switch who {
							case "cancel":
								time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
							case "cancel because of a deadline": // as errgroup does
								time.AfterFunc(100*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
							case "deadline":
								ctx = w.within(100 * time.Millisecond)
							case "deadline with a cause":
								bounded, done := context.WithTimeoutCause(background, 100*time.Millisecond, gone)
								defer done()
								ctx = bounded
							case "our limit":
								ctx = background
							}
							hangs(net)
							err, ok := ended(net, 30*time.Second, func() error { _, err := q.ask(ctx, w, locker, l); return err })
							ends := !strings.HasPrefix(who, "our limit")
							switch canceled, late := errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded); {
							case !ok:
								t.Error("it has not ended after 30 s")
							case q.name == "Release" && ends && errors.Is(err, compat.ErrUnknown):
							case strings.HasPrefix(who, "cancel") && (!canceled || late && who == "cancel"):
								t.Errorf("the caller cancelled: %v", err)
							case strings.HasPrefix(who, "deadline") && (!late || canceled):
								t.Errorf("the caller's deadline passed: %v", err)
							case ends && q.name == "Inspect" && errors.Is(err, errTimeout): // which cleans nothing up
								t.Errorf("the caller's end is said to be our limit: %v", err)
							case ends:
							case canceled || late:
								t.Errorf("our limit ran out, and that is said to be the caller's end: %v", err)
							case !errors.Is(err, errTimeout):
								t.Errorf("our limit ran out, which nothing tells: %v", err)
							}
							net.Clear()
							locker.Close(w.within(time.Minute)) //nolint:errcheck // it ends the connections that are shared
							pass(time.Minute)
						})
					})
				})
			}
		}
	}
}

// No step returns a lease that has run out, however long its replies took, nor one
// of a lock that was declared lost in the meantime.
func TestNeverALeaseThatHasRunOut(t *testing.T) {
	for _, q := range questions[:5] {
		t.Run(q.name, func(t *testing.T) {
			eachKind(t, append(all(true), singles(false)...), func(t *testing.T, k kind) {
				wrong := 0
				for _, d := range []time.Duration{medium + time.Second, long + time.Second} {
					for _, late := range []bool{false, true} {
						for n, reached := 1, true; reached && n < 60; n++ {
							inWorld(t, k, func(w *world) {
								locker, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
								l := w.try(locker, medium)
								pass(time.Second)
								slow := faulty.Fate{Before: d}
								if late {
									slow = faulty.Fate{After: d}
								}
								net.Expect(slow.At(n))
								got, err := q.ask(background, w, locker, l)
								synctest.Wait()
								reached = net.Count() >= n
								if err == nil && !believes(got) {
									if wrong++; wrong <= 2 {
										t.Errorf("command %d took %v: no error, and a lease until %v from now, its context %v",
											n, d, time.Until(got.Until()), context.Cause(got.Context()))
									}
								}
							})
						}
					}
				}
				if wrong > 2 {
					t.Logf("wrong in %d runs", wrong)
				}
			})
		})
	}
}

// An adoption says that the lock is lost only if it can't be adopted a moment later: that its own time had
// run out before the server answered, or that the clock was set meanwhile, proves nothing about the key.
func TestAdoptionLostMeansLost(t *testing.T) {
	const over = medium + time.Second
	ways := map[string]func(c *simulate.Clock) faulty.Fate{
		"request late":    func(*simulate.Clock) faulty.Fate { return faulty.Fate{Before: over} },
		"reply late":      func(*simulate.Clock) faulty.Fate { return faulty.Fate{After: over} },
		"clock set ahead": func(c *simulate.Clock) faulty.Fate { return faulty.Then(func() { c.Set(time.Hour) }) },
	}
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for way, fate := range ways {
			for n, reached := 1, true; reached && n < 60; n++ {
				inWorld(t, k, func(w *world) {
					holder, _ := w.client(compat.Options{NoRenew: true, Timeout: time.Hour})
					l := w.try(holder, long)
					c := simulate.NewClock()
					adopter, net := w.client(compat.Options{NoRenew: true, Timeout: time.Hour, Clock: c})
					net.Expect(fate(c).At(n))
					_, err := adopter.Adopt(background, l.Key(), l.Token(), medium)
					synctest.Wait()
					reached = net.Count() >= n
					if !errors.Is(err, compat.ErrLost) {
						return
					}
					net.Clear()
					if _, again := adopter.Adopt(background, l.Key(), l.Token(), medium); again == nil {
						t.Errorf("command %d, %s: %v, and then it was adopted", n, way, err)
					}
				})
			}
		}
	})
}

// An error is one line, for a log, and says once of each key that an outcome is unknown, and nothing twice in a row.
func TestErrorsAreOneLine(t *testing.T) {
	eachKind(t, append(all(false), all(true)...), func(t *testing.T, k kind) {
		everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
			locker, net := w.client(compat.Options{NoRenew: true})
			var wrong string
			says := func(err error) {
				if err != nil && (strings.Contains(err.Error(), "\n") || stutters(err.Error()) || strings.Count(err.Error(), sprint("outcome unknown for %q", k.key)) > 1 && len(k.versions) == 1) {
					wrong = sprint("%q", err)
				}
			}
			strike(net)
			call, end := context.WithCancel(background)
			defer end()
			l, err := locker.TryLock(call, k.key, long)
			if says(err); err == nil {
				says(l.Extend(call, medium))
				_, err := l.Detach(call)
				says(err)
				says(l.Release(call))
			}
			ctx, cancel := context.WithTimeout(background, 3*time.Second)
			defer cancel()
			_, err = locker.Lock(ctx, k.key, long)
			says(err)
			return wrong
		})
	})
}

// stutters reports whether an error's text repeats a part at once.
func stutters(text string) bool {
	parts := strings.Split(strings.ReplaceAll(text, "setnxlock: ", ""), ": ")
	return len(slices.Compact(slices.Clone(parts))) < len(parts)
}

// An adoption of unknown outcome is repeated, as its comment says, and has the lock then.
func TestAdoptOnceMore(t *testing.T) {
	for _, fence := range []bool{false, true} {
		eachKind(t, all(fence), func(t *testing.T, k kind) {
			everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
				holder, _ := w.client(compat.Options{NoRenew: true})
				l := w.try(holder, time.Hour)
				adopter, net := w.client(compat.Options{NoRenew: true})
				strike(net)
				_, err := adopter.Adopt(background, l.Key(), l.Token(), time.Hour)
				net.Clear()
				var unknown *compat.UnknownError
				if !errors.As(err, &unknown) {
					return ""
				}
				next, err := adopter.Adopt(background, l.Key(), unknown.Lease.Value, time.Hour)
				if errors.Is(err, compat.ErrLost) {
					next, err = adopter.Adopt(background, l.Key(), l.Token(), time.Hour)
				}
				if err != nil {
					return sprint("%v, and then %v", unknown, err)
				}
				if err := next.Release(background); err != nil {
					return sprint("adopted, and then %v", err)
				}
				return ""
			})
		})
	}
}

// A handle can be adopted until Lock.Until, also where a server counts in whole seconds.
func TestDetachedIsAdoptable(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		for _, since := range []time.Duration{0, 400 * time.Millisecond, 990 * time.Millisecond} { // the server's second began
			for at, over := time.Duration(0), false; !over; at += 100 * time.Millisecond {
				inWorld(t, k, func(w *world) {
					pass(since)
					locker, _ := w.client(compat.Options{NoRenew: true})
					l := w.try(locker, 2*time.Second)
					pass(at)
					left := time.Until(l.Until())
					if over = !believes(l); over {
						return
					}
					h := must.Get(l.Detach(background))(t)
					if next, err := locker.AdoptHandle(background, h, medium); err != nil {
						t.Errorf("detached %v before its end: AdoptHandle: %v", left, err)
					} else if err := next.Release(background); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// An extension whose reply was lost, and which was found by reading, leaves a lock
// that is released like any other, also where the server can be replaced: it was not.
func TestReleaseAfterAResolvedExtension(t *testing.T) {
	kinds := singles(false)
	for i, k := range kinds {
		kinds[i].make = func(s []compat.Source, o compat.Options) *compat.Locker {
			lasting := s[0]
			lasting.Epoch = func() uint64 { return 7 } // it can be replaced, and never is
			return k.make([]compat.Source{lasting}, o)
		}
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		for n, more := 1, true; more && n < 40; n++ {
			if realredis.UnderRace() && n > 3 {
				break
			}
			everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
				holder, net := w.client(compat.Options{NoRenew: true})
				l := w.try(holder, long)
				net.Expect(misfortunes[0].fate.At(n))
				err := l.Extend(background, long)
				if more = net.Count() >= n; err != nil {
					strike(net)
					return ""
				}
				net.Clear()
				strike(net)
				if err := l.Release(background); err != nil && !errors.Is(err, compat.ErrUnknown) {
					return sprint("the reply to command %d of the extension was lost, and then the release: %v", n, err)
				}
				return ""
			})
		}
	})
}

// As Detach says: after an extension of unknown outcome, extend the lock once more. Then it can be detached, and
// also a lock that can't change its value is extended to deadline after deadline, whatever replies are lost.
func TestDetachAfterLostReplies(t *testing.T) {
	eachKind(t, append(all(true), one("bridge.TwoNames", "7.0", twoNames(true))), func(t *testing.T, k kind) {
		for at, reached := 1, true; reached; at++ {
			inWorld(t, k, func(w *world) {
				locker, n := w.client(compat.Options{NoRenew: true})
				l := w.try(locker, time.Hour)
				for again := range 20 {
					n.Expect(faulty.Fate{Loss: faulty.LostReply}.At(at))
					lost := l.Extend(background, time.Hour+time.Duration(again)*time.Second)
					reached = n.Count() >= at
					n.Clear()
					if err := l.Extend(background, time.Hour-time.Duration(again)*time.Second); err != nil {
						t.Fatalf("extended again after %v: %v", lost, err)
					}
				}
				if h, err := l.Detach(background); err != nil {
					t.Errorf("extended again, and then: %v", err)
				} else if err := locker.ReleaseHandle(background, h); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// A handle that is delivered twice is adopted once: the adopter's value is nobody else's, whoever has seen the former one,
// its old holder among them. A lock of whole seconds keeps this within a second, too.
func TestAHandleIsAdoptedOnce(t *testing.T) {
	eachKind(t, append(all(true), seconds()...), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, _ := w.client(compat.Options{NoRenew: true})
			first, _ := w.client(compat.Options{NoRenew: true})
			second, _ := w.client(compat.Options{NoRenew: true})
			old := w.try(holder, long)
			h := old.Handle()
			mine := must.Get(first.AdoptHandle(background, h, long))(t)
			if k.name == "rwlock.Write" { // it can't change its token: Traits.Rotates
				if mine.Token() != h.Token {
					t.Error("it changes its token: it can keep the whole promise")
				}
				return
			}
			if mine.Token() == h.Token {
				t.Error("the adopter goes on with the value that was handed out")
			}
			if _, err := second.AdoptHandle(background, h, long); !errors.Is(err, compat.ErrLost) {
				t.Errorf("adopted a second time: %v, want ErrLost", err)
			}
			if err := second.ReleaseHandle(background, h); !errors.Is(err, compat.ErrLost) {
				t.Errorf("released by the handle that was adopted: %v, want ErrLost", err)
			}
			if err := old.Extend(background, long); !errors.Is(err, compat.ErrLost) {
				t.Errorf("the old holder extends: %v, want ErrLost", err)
			}
			old.Release(background) //nolint:errcheck // whatever it says
			if err := mine.Extend(background, long); err != nil {
				t.Errorf("the adopter extends: %v", err)
			}
		})
	})
}
