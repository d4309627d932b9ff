// Package catalogue has the known races of locks like these. Each is a text file that is run as a
// test and read as a page: on the real code of a lock and the embedded Redis of the version named.
// `go test ./compat/race/catalogue -update` writes what it saw into the files.
//
// The locks of other libraries are here too, to be broken: they are small and do what the
// library's clients do.
package catalogue
