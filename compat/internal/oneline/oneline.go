// Package oneline joins errors as errors.Join does, on one line, and says nothing twice.
package oneline

import (
	"slices"
	"strings"
)

type joined struct{ errs []error }

// Join returns an error that is each of errs which is not nil; nil: none is.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

func (j *joined) Error() string {
	var texts []string
	for _, err := range j.errs {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (j *joined) Unwrap() []error { return j.errs }
