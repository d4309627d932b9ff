package main

import "syscall"

// diesWithUs has the kernel kill the command when we end without having waited for it (kill -9,
// the OOM killer). It is the thread that started the command whose end counts: start
// keeps that one.
func diesWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
