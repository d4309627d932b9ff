// Package otel makes spans of what locks do, for OpenTelemetry.
//
//	compat.New(pool, txlock.Renamed{}, compat.Options{Observer: otel.Observer(provider)})
//
// A span "lock KEY" covers the wait for a lock, until it is acquired; "hold KEY" covers the time
// from there to its release or loss. An Observer learns of both only when they have ended, and gets
// no context, so each span is a root. It has the key, how the lock was acquired, and the fence as
// attributes.
package otel

import (
	"context"
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// The attributes beside those of the semantic conventions for databases.
const (
	Key   = attribute.Key("setnxlock.key")   // as it stands on the server
	How   = attribute.Key("setnxlock.how")   // of a lock: free, taken over, resolved, adopted, handed off
	Tries = attribute.Key("setnxlock.tries") // attempts until it was obtained
	Fence = attribute.Key("setnxlock.fence") // if one was drawn
)

// Observer returns an Observer that makes spans. attrs are put on each: server.address, say. A hold
// that was lost has the status error and an event "lock lost"; one whose release has an unknown
// outcome, or found the lock lost, the error that says so.
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
		_, span := tracer.Start(context.Background(), name+" "+e.Key, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now.Add(-e.Took)),
			trace.WithAttributes(semconv.DBSystemNameRedis, semconv.DBOperationName(name), Key.String(e.Key)), trace.WithAttributes(attrs...))
		defer span.End(trace.WithTimestamp(now))
		if e.Lease.Fence > 0 {
			span.SetAttributes(Fence.Int64(e.Lease.Fence))
		}
		if e.Kind == compat.EventAcquired {
			span.SetAttributes(How.String(string(e.Lease.How)), Tries.Int(e.Tries))
		}
		if e.Err == nil && e.Kind != compat.EventLost {
			return
		}
		err := e.Err
		if err == nil {
			err = compat.ErrLost
		}
		span.RecordError(err, trace.WithTimestamp(now))
		span.SetStatus(codes.Error, err.Error())
		if e.Kind == compat.EventLost || errors.Is(err, compat.ErrLost) {
			span.AddEvent("lock lost", trace.WithTimestamp(now))
		}
	}
}
