// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package patchset

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Patch is one change to upstream's files.
type Patch struct {
	Name    string // File name in the series.
	Message string // Why the patch exists, ending with its trailers.
	Diff    string // What git apply reads.
}

// The line that separates a patch's message from its diff.
const patchSeparator = "---"

// ParsePatch splits the text of a patch file. It does not look at what the
// message says; see Check.
func ParsePatch(name, text string) (Patch, error) {
	// The newline in front makes the first line one like any other.
	head, diff, ok := strings.Cut("\n"+text, "\ndiff --git ")
	if !ok {
		return Patch{}, fmt.Errorf("%s: no line starts with \"diff --git\": it is not a patch", name)
	}
	message := strings.TrimSpace(head)
	message = strings.TrimSpace(strings.TrimSuffix(message, "\n"+patchSeparator))
	if message == "" || message == patchSeparator {
		return Patch{}, fmt.Errorf("%s: the patch has no message: say why it exists", name)
	}
	return Patch{Name: name, Message: message, Diff: "diff --git " + diff}, nil
}

// Format is the inverse of ParsePatch.
func (p Patch) Format() string {
	return p.Message + "\n" + patchSeparator + "\n" + p.Diff
}

// Subject is the first line of the message.
func (p Patch) Subject() string {
	subject, _, _ := strings.Cut(p.Message, "\n")
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
func (p Patch) trailers() map[string][]string {
	paragraphs := strings.Split(p.Message, "\n\n")
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

// Tests returns the go test commands that cover the patch.
func (p Patch) Tests() []string { return p.trailers()["Tests"] }

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

// Check reports everything that is wrong with the patch's message.
func (p Patch) Check() error {
	var errs []error
	if strings.Count(p.Message, "\n\n") < 2 {
		errs = append(errs, fmt.Errorf("%s: the message needs a subject, a paragraph that says why the patch exists, and trailers", p.Name))
	}
	trailers := p.trailers()
	for _, t := range trailerForms {
		values := trailers[t.key]
		if len(values) == 0 {
			errs = append(errs, fmt.Errorf("%s: trailer %s is missing: it wants %s", p.Name, t.key, t.want))
		}
		for _, v := range values {
			if !t.form.MatchString(v) {
				errs = append(errs, fmt.Errorf("%s: trailer %s: %q is not %s", p.Name, t.key, v, t.want))
			}
		}
	}
	return errors.Join(errs...)
}
