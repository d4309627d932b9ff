//go:build unix && !linux

package main

import "syscall"

// diesWithUs does nothing: no other system but Linux ends a command with its parent.
func diesWithUs(*syscall.SysProcAttr) {}
