// Package prometheus counts what locks do, for Prometheus.
//
//	locks, err := prometheus.New(prometheus.DefaultRegisterer, nil)
//	…
//	compat.New(pool, txlock.Renamed{}, compat.Options{Observer: locks.Observe})
//
// Each metric has the label lock: a name for the key. Keep the number of names small.
// docs/observing.md describes the metrics, with alerts; dashboard.json is for Grafana.
package prometheus

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/setnxlock/setnxlock/compat"
)

// Metrics are what one or more Lockers do.
type Metrics struct {
	name func(key string) string

	acquisitions *prometheus.CounterVec
	attempts     *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	hold         *prometheus.HistogramVec
	held         *prometheus.GaugeVec
	lost         *prometheus.CounterVec
	renewals     *prometheus.CounterVec
	releases     *prometheus.CounterVec
	repairs      *prometheus.CounterVec
}

// New registers the metrics with r. name is the label of a key's lock: name("user:42") may be
// "user". nil: the key itself, which is for programs with few keys.
func New(r prometheus.Registerer, name func(key string) string) (*Metrics, error) {
	if name == nil {
		name = func(key string) string { return key }
	}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "setnxlock", Name: name, Help: help}, append([]string{"lock"}, labels...))
	}
	// From a round trip to an hour, each four times the one before.
	spans := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "setnxlock", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 12),
		}, []string{"lock"})
	}
	m := &Metrics{
		name:         name,
		acquisitions: count("acquisitions_total", "Locks that were obtained, by how: free, taken over, resolved, adopted, handed off.", "how"),
		attempts:     count("attempts_total", "Single attempts to take a lock that did not obtain it, by outcome: held, not sent, unknown, refused.", "outcome"),
		wait:         spans("wait_seconds", "From the call to the lock, of locks that were obtained."),
		hold:         spans("hold_seconds", "How long locks were held, to their release or their loss."),
		held:         prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "setnxlock", Name: "held", Help: "Locks that this process holds."}, []string{"lock"}),
		lost:         count("lost_total", "Locks that were lost: another client may have worked at the same time."),
		renewals:     count("renewals_total", "Extensions of held locks, by outcome: ok, failed (it is tried again).", "outcome"),
		releases:     count("releases_total", "Ends of holds that were asked for, by outcome: ok, lost, unknown; a hand-off is one.", "outcome"),
		repairs:      count("repairs_total", "Keys that nothing would have ended and that were given an end."),
	}
	for _, c := range []prometheus.Collector{m.acquisitions, m.attempts, m.wait, m.hold, m.held, m.lost, m.renewals, m.releases, m.repairs} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Observe is a compat.Observer.
func (m *Metrics) Observe(e compat.Event) {
	lock := m.name(e.Key)
	switch e.Kind {
	case compat.EventAttempt:
		if e.Err != nil {
			m.attempts.WithLabelValues(lock, outcome(e.Err)).Inc()
		}
	case compat.EventAcquired:
		m.acquisitions.WithLabelValues(lock, string(e.Lease.How)).Inc()
		m.wait.WithLabelValues(lock).Observe(e.Took.Seconds())
		m.held.WithLabelValues(lock).Inc()
		m.lost.WithLabelValues(lock) // a counter that appears with its first event hides it from increase()
	case compat.EventExtended:
		m.renewals.WithLabelValues(lock, "ok").Inc()
	case compat.EventFailed:
		m.renewals.WithLabelValues(lock, "failed").Inc()
	case compat.EventLost:
		m.lost.WithLabelValues(lock).Inc()
		m.ended(lock, e.Took)
	case compat.EventReleased:
		how := "ok"
		if e.Err != nil {
			how = "unknown"
		}
		if errors.Is(e.Err, compat.ErrLost) {
			how = "lost"
		}
		m.releases.WithLabelValues(lock, how).Inc()
		m.ended(lock, e.Took)
	case compat.EventRepaired:
		m.repairs.WithLabelValues(lock).Inc()
	}
}

func (m *Metrics) ended(lock string, took time.Duration) {
	m.hold.WithLabelValues(lock).Observe(took.Seconds())
	m.held.WithLabelValues(lock).Dec()
}

// outcome is why an attempt did not obtain the lock.
func outcome(err error) string {
	switch {
	case errors.Is(err, compat.ErrHeld):
		return "held"
	case compat.OutcomeOf(err) == compat.NotSent:
		return "not sent"
	case compat.OutcomeOf(err) == compat.Refused:
		return "refused"
	}
	return "unknown"
}
