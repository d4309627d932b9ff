// Package oldredis is an embedded Redis that behaves like the version asked for.
package oldredis
