// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// patch is one change to upstream's files.
type patch struct {
	name    string // File name in the series.
	message string // Why the patch exists, ending with its trailers.
	diff    string // What git apply reads.
}

// The line that separates a patch's message from its diff.
const patchSeparator = "---"

// parsePatch splits the text of a patch file. It does not look at what the
// message says; see check.
func parsePatch(name, text string) (patch, error) {
	// The newline in front makes the first line one like any other.
	head, diff, ok := strings.Cut("\n"+text, "\ndiff --git ")
	if !ok {
		return patch{}, fmt.Errorf("%s: no line starts with \"diff --git\": it is not a patch", name)
	}
	message := strings.TrimSpace(head)
	message = strings.TrimSpace(strings.TrimSuffix(message, "\n"+patchSeparator))
	if message == "" || message == patchSeparator {
		return patch{}, fmt.Errorf("%s: the patch has no message: say why it exists", name)
	}
	return patch{name: name, message: message, diff: "diff --git " + diff}, nil
}

// format is the inverse of parsePatch.
func (p patch) format() string {
	return p.message + "\n" + patchSeparator + "\n" + p.diff
}

// subject is the first line of the message.
func (p patch) subject() string {
	subject, _, _ := strings.Cut(p.message, "\n")
	return subject
}

var notSlug = regexp.MustCompile(`[^a-z0-9]+`)

// fileName derives the n-th patch's file name from a subject, counting from 1.
func fileName(n int, subject string) string {
	slug := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(subject), "-"), "-")
	if len(slug) > 60 {
		slug = strings.TrimRight(slug[:60], "-")
	}
	return fmt.Sprintf("%04d-%s.patch", n, slug)
}

var trailerLine = regexp.MustCompile(`^([A-Z][A-Za-z-]*): (.+)$`)

// trailers returns the key-value lines of the message's last paragraph.
func (p patch) trailers() map[string][]string {
	paragraphs := strings.Split(p.message, "\n\n")
	out := map[string][]string{}
	last := ""
	for line := range strings.SplitSeq(paragraphs[len(paragraphs)-1], "\n") {
		switch m := trailerLine.FindStringSubmatch(line); {
		case m != nil:
			last = m[1]
			out[last] = append(out[last], strings.TrimSpace(m[2]))
		case last != "" && strings.TrimLeft(line, " \t") != line:
			// A folded line continues the trailer above it.
			v := out[last]
			v[len(v)-1] += " " + strings.TrimSpace(line)
		}
	}
	return out
}

// tests returns the go test commands that cover the patch.
func (p patch) tests() []string { return p.trailers()["Tests"] }

// What each trailer must look like. Every patch carries each of them at least once.
var trailerForms = []struct {
	key, want string
	form      *regexp.Regexp
}{
	{"Reason", "temporary, environment or incompatible", regexp.MustCompile(`^(temporary|environment|incompatible)$`)},
	{"Upstream", "a URL, \"backport SHA\" or \"not-submitted: why\"", regexp.MustCompile(`^(https?://\S+|backport [0-9a-f]{7,40}|not-submitted: .+)$`)},
	{"Tests", "a command that starts with \"go test \"", regexp.MustCompile(`^go test \S`)},
	{"Remove-When", "the event after which the patch can go", regexp.MustCompile(`\S`)},
}

// check reports everything that is wrong with the patch's message.
func (p patch) check() error {
	var errs []error
	if strings.Count(p.message, "\n\n") < 2 {
		errs = append(errs, fmt.Errorf("%s: the message needs a subject, a paragraph that says why the patch exists, and trailers", p.name))
	}
	trailers := p.trailers()
	for _, t := range trailerForms {
		values := trailers[t.key]
		if len(values) == 0 {
			errs = append(errs, fmt.Errorf("%s: trailer %s is missing: it wants %s", p.name, t.key, t.want))
		}
		for _, v := range values {
			if !t.form.MatchString(v) {
				errs = append(errs, fmt.Errorf("%s: trailer %s: %q is not %s", p.name, t.key, v, t.want))
			}
		}
	}
	return errors.Join(errs...)
}
