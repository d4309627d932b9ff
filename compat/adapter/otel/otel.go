// Package otel makes OpenTelemetry spans of locks.
//
//	compat.New(pool, txlock.Renamed{}, compat.Options{Observer: otel.Observer(provider)})
//
// A span "lock KEY" covers the wait for a lock that was acquired; a span "hold KEY" covers the time
// until its release or loss. Each is a child of the span in which the call was made that ended it: Lock, TryLock, Do or
// Adopt for the wait, Release, Do or Handoff for the hold. The hold of a lock that was lost is a child of the span in
// which it was taken.
package otel

import (
	"errors"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes beside those of the semantic conventions for databases.
const (
	Key   = attribute.Key("setnxlock.key")   // with its prefix
	How   = attribute.Key("setnxlock.how")   // of "lock": free, taken over, resolved, adopted, handed off
	Tries = attribute.Key("setnxlock.tries") // of "lock": attempts, the successful one included
	Fence = attribute.Key("setnxlock.fence") // if the lock has one
)

// Observer returns an Observer that adds attrs, such as server.address, to every span. A hold whose
// release failed has the status error. A hold that was lost also has an event "lock lost".
func Observer(provider trace.TracerProvider, attrs ...attribute.KeyValue) compat.Observer {
	tracer := provider.Tracer("github.com/setnxlock/setnxlock/compat/adapter/otel", trace.WithSchemaURL(semconv.SchemaURL))
	return func(e compat.Event) {
		name := ""
		switch e.Kind {
		case compat.EventAcquired:
			name = "lock"
		case compat.EventReleased, compat.EventLost:
			name = "hold"
		default:
			return
		}
		now := time.Now()
		key := strings.ToValidUTF8(e.Key, "\uFFFD") // an exporter drops all spans that it would send with any other
		_, span := tracer.Start(e.Context, name+" "+key,
			trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now.Add(-e.Took)),
			trace.WithAttributes(semconv.DBSystemNameRedis, semconv.DBOperationName(name), Key.String(key)),
			trace.WithAttributes(attrs...))
		defer span.End(trace.WithTimestamp(now))
		if e.Lease.Fence > 0 {
			span.SetAttributes(Fence.Int64(e.Lease.Fence))
		}
		if e.Kind == compat.EventAcquired {
			span.SetAttributes(How.String(string(e.Lease.How)), Tries.Int(e.Tries))
		}
		if e.Err == nil {
			return
		}
		span.RecordError(e.Err, trace.WithTimestamp(now))
		span.SetStatus(codes.Error, e.Err.Error())
		if errors.Is(e.Err, compat.ErrLost) {
			span.AddEvent("lock lost", trace.WithTimestamp(now))
		}
	}
}
