//go:build unix && !linux

package main

import "syscall"

// diesWithUs does nothing: no other system but Linux ends a command whose parent was killed.
func diesWithUs(*syscall.SysProcAttr) {}
