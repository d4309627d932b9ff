package main

func (b *bench) document(r *Report) error { return nil }
