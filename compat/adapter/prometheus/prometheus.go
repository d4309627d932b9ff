// Package prometheus counts locks, waits and losses for Prometheus.
//
//	locks, err := prometheus.New(prometheus.DefaultRegisterer, nil)
//	…
//	compat.New(pool, txlock.Renamed{}, compat.Options{Observer: locks.Observe})
//
// docs/observing.md describes the metrics, with alerts; dashboard.json is for Grafana.
package prometheus

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Metrics counts the events of one or more Lockers.
type Metrics struct {
	// Exemplar returns the labels of the exemplar of a wait or a hold, such as its trace, given the context of the call
	// that ended it; nil: it has none. Set it before the first event.
	Exemplar func(ctx context.Context) prometheus.Labels

	name func(key string) string

	acquisitions, attempts, lost, renewals, releases, repairs *prometheus.CounterVec
	wait, hold                                                *prometheus.HistogramVec
	held                                                      *prometheus.GaugeVec
}

// New registers the metrics with r. The label lock of each is name(key): name("user:42") may return
// "user". Without name it is the key, which suits programs with few keys.
func New(r prometheus.Registerer, name func(key string) string) (*Metrics, error) {
	if name == nil {
		name = func(key string) string { return key }
	}
	var registered error
	register := func(c prometheus.Collector) { registered = errors.Join(registered, r.Register(c)) }
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"lock"}, labels...))
		register(c)
		return c
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		buckets := prometheus.ExponentialBuckets(0.001, 4, 12) // from a round trip to an hour
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"lock"})
		register(h)
		return h
	}
	m := &Metrics{
		name: name,
		acquisitions: counter("setnxlock_acquisitions_total",
			"Locks that were obtained, by how: free, taken over, resolved, adopted, handed off.", "how"),
		attempts: counter("setnxlock_attempts_total",
			"Single attempts to take a lock that did not obtain it, by outcome: held, not sent, unknown, refused.", "outcome"),
		wait: histogram("setnxlock_wait_seconds", "From the call to the lock, of locks that were obtained."),
		hold: histogram("setnxlock_hold_seconds", "How long locks were held, to their release or their loss."),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "setnxlock_held", Help: "Locks that this process holds.",
		}, []string{"lock"}),
		lost: counter("setnxlock_lost_total",
			"Locks that were lost: another client may have worked at the same time."),
		renewals: counter("setnxlock_renewals_total",
			"Extensions of held locks, by outcome: ok, failed (it is tried again).", "outcome"),
		releases: counter("setnxlock_releases_total",
			"Ends of holds that were asked for, by outcome: ok, lost, unknown; a hand-off is one.", "outcome"),
		repairs: counter("setnxlock_repairs_total",
			"Keys that nothing would have ended and that were given an end."),
	}
	register(m.held)
	if registered != nil {
		return nil, registered
	}
	return m, nil
}

// Observe is a compat.Observer.
func (m *Metrics) Observe(e compat.Event) {
	lock := strings.ToValidUTF8(m.name(e.Key), "\uFFFD") // the client panics over any other label
	switch e.Kind {
	case compat.EventAttempt:
		if e.Err != nil {
			m.attempts.WithLabelValues(lock, outcome(e.Err)).Inc()
		}
	case compat.EventAcquired:
		m.acquisitions.WithLabelValues(lock, string(e.Lease.How)).Inc()
		m.took(m.wait, lock, e)
		m.held.WithLabelValues(lock).Inc()
		m.lost.WithLabelValues(lock) // a counter that appears with its first event hides it from increase()
	case compat.EventExtended:
		m.renewals.WithLabelValues(lock, "ok").Inc()
	case compat.EventFailed:
		m.renewals.WithLabelValues(lock, "failed").Inc()
	case compat.EventLost:
		m.lost.WithLabelValues(lock).Inc()
		m.ended(lock, e)
	case compat.EventReleased:
		how := "ok"
		if e.Err != nil {
			how = "unknown"
		}
		if errors.Is(e.Err, compat.ErrLost) {
			how = "lost"
		}
		m.releases.WithLabelValues(lock, how).Inc()
		m.ended(lock, e)
	case compat.EventRepaired:
		m.repairs.WithLabelValues(lock).Inc()
	}
}

func (m *Metrics) ended(lock string, e compat.Event) {
	m.took(m.hold, lock, e)
	m.held.WithLabelValues(lock).Dec()
}

func (m *Metrics) took(h *prometheus.HistogramVec, lock string, e compat.Event) {
	var labels prometheus.Labels
	if m.Exemplar != nil {
		labels = m.Exemplar(e.Context)
	}
	h.WithLabelValues(lock).(prometheus.ExemplarObserver).ObserveWithExemplar(e.Took.Seconds(), labels) // nil: none
}

// outcome is why an attempt did not obtain the lock.
func outcome(err error) string {
	switch {
	case errors.Is(err, compat.ErrHeld):
		return "held"
	case protocol.OutcomeOf(err) == protocol.NotSent:
		return "not sent"
	case protocol.OutcomeOf(err) == protocol.Refused:
		return "refused"
	}
	return "unknown"
}
