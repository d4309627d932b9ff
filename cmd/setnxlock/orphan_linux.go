package main

import "syscall"

// diesWithUs has the kernel kill the command when we end without waiting for it (kill -9, the OOM killer).
// The end of the thread that started the command counts: start keeps that one.
func diesWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
