// Package catalogue is the races that locks of this family are known for: each
// a text file that is run as a test and read as a page. What a file says
// happens on the real code of a lock and on the embedded Redis of the version
// named; `go test ./compat/race/catalogue -update` writes down what it saw.
//
// The locks of other libraries are here too, one to a file: small, faithful to
// what their users run, and here only to be broken.
package catalogue
