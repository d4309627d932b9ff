package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// passes reports a failure that may pass: nothing is wrong with the address, the password or the lock.
func passes(err error) bool {
	if f := failure(err); errors.Is(err, protocol.ErrLost) || f != nil && f.Status != statusUnavailable {
		return false
	}
	var refused redis.Error
	if errors.As(err, &refused) {
		d := denial(refused)
		return d != nil && d.Passes || refused == probe.Closed // what a full server's reply may be lost in
	}
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	dial := dialled(err)
	switch {
	case errors.Is(err, protocol.ErrUnsafeServer), errors.Is(err, protocol.ErrForeign), errors.Is(err, protocol.ErrUnanswered), errors.Is(dial, os.ErrPermission),
		errors.As(dial, &record), errors.As(dial, &certificate), errors.As(dial, &authority), notRedis(err):
		return false
	}
	var network net.Error
	return errors.As(dial, &network) || errors.Is(dial, io.EOF) || errors.Is(dial, io.ErrUnexpectedEOF) ||
		errors.Is(err, sentinel.ErrNoMaster) || errors.Is(err, protocol.ErrTimeout) || errors.Is(err, protocol.ErrUnknown)
}

// pause waits between two attempts to reach a server: longer each time, up to a second or so.
func pause(ctx context.Context, tries int) {
	d := min(50*time.Millisecond<<min(tries, 5), time.Second)
	again := time.NewTimer(d/2 + rand.N(d))
	defer again.Stop()
	select {
	case <-ctx.Done():
	case <-again.C:
	}
}
