package otel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/otel"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestSpans(t *testing.T) {
	addr := realredis.Start(t)
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer pool.Close()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	ctx := context.Background()
	locks := compat.New(pool, txlock.Renamed{Options: txlock.Options{Fence: true}}, compat.Options{Observer: otel.Observer(provider, attribute.String("server.address", addr))})
	kept := must.Get(locks.TryLock(ctx, "kept\xff", time.Minute))(t)
	if _, err := locks.TryLock(ctx, "kept\xff", time.Minute); !errors.Is(err, compat.ErrHeld) {
		t.Fatal(err)
	}
	must.Do(t, kept.Release(ctx))
	lost := must.Get(locks.TryLock(ctx, "lost", time.Minute))(t)
	c := pool.Get()
	defer c.Close()
	must.Get(c.Do("DEL", "lost"))(t)
	if err := lost.Extend(ctx, time.Minute); !errors.Is(err, compat.ErrLost) {
		t.Fatal(err)
	}
	all := spans.GetSpans()
	for i, want := range []struct {
		name   string
		status codes.Code
		events int
	}{{"lock kept\uFFFD", codes.Unset, 0}, {"hold kept\uFFFD", codes.Unset, 0}, {"lock lost", codes.Unset, 0}, {"hold lost", codes.Error, 2}} {
		if i >= len(all) {
			t.Fatalf("%d spans", len(all))
		}
		s := all[i]
		attrs := attribute.NewSet(s.Attributes...)
		system, _ := attrs.Value("db.system.name")
		fence, _ := attrs.Value(otel.Fence)
		server, _ := attrs.Value("server.address")
		how, told := attrs.Value(otel.How)
		key, _ := attrs.Value(otel.Key)
		if s.Name != want.name || s.Status.Code != want.status || len(s.Events) != want.events || s.EndTime.Before(s.StartTime) || s.EndTime.Sub(s.StartTime) > time.Minute {
			t.Errorf("span %d: %q, %v, events %v, %v to %v", i, s.Name, s.Status, s.Events, s.StartTime, s.EndTime)
		}
		if system.AsString() != "redis" || !strings.HasSuffix(s.Name, " "+key.AsString()) || fence.AsInt64() < 1 || server.AsString() != addr || told != (i%2 == 0) || told && how.AsString() != "free" {
			t.Errorf("%s: %v", s.Name, s.Attributes)
		}
	}
	if len(all) != 4 {
		t.Errorf("%d spans, want 4", len(all))
	}
}

// A span belongs to the caller's trace, that of a loss too, which nobody asked for.
func TestParents(t *testing.T) {
	addr := realredis.Start(t)
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer pool.Close()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{NoRenew: true, Observer: otel.Observer(provider)})
	in := func(name string) context.Context {
		ctx, _ := provider.Tracer("test").Start(context.Background(), name)
		return ctx
	}
	taking, releasing, doing, losing := in("taking"), in("releasing"), in("doing"), in("losing")
	l := must.Get(locks.TryLock(taking, "k", time.Minute))(t)
	must.Do(t, l.Release(releasing))
	must.Do(t, locks.Do(doing, "do", time.Minute, func(context.Context) error { return nil }))
	lost := must.Get(locks.Lock(losing, "lost", time.Second))(t)
	<-lost.Context().Done()
	for n := 0; len(spans.GetSpans()) < 6 && n < 1000; n++ { // the context ends before the Observer is told
		time.Sleep(time.Millisecond)
	}
	all := spans.GetSpans()
	for i, want := range []struct {
		name string
		in   context.Context
	}{{"lock k", taking}, {"hold k", releasing}, {"lock do", doing}, {"hold do", doing}, {"lock lost", losing}, {"hold lost", losing}} {
		if i >= len(all) {
			t.Fatalf("%d spans", len(all))
		}
		parent := trace.SpanContextFromContext(want.in)
		if s := all[i]; s.Name != want.name || s.Parent.SpanID() != parent.SpanID() || s.SpanContext.TraceID() != parent.TraceID() {
			t.Errorf("span %d is %q in %v, want %q in %v", i, s.Name, s.Parent, want.name, parent)
		}
	}
}
