// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"bufio"
	"io"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// WriteText writes the target's exposition at a time since the cluster's start,
// in the text format as client libraries print it. It holds one buffer and the
// labels of the target's entities, not the exposition.
func (t *Target) WriteText(w io.Writer, at time.Duration) error {
	out := bufio.NewWriterSize(w, 64<<10)
	entities := make([]textEntity, 0, len(t.groups))
	for _, g := range t.groups {
		entities = append(entities, g.textEntity(at))
	}
	for i := range t.families {
		if err := t.writeFamily(out, &t.families[i], entities, at); err != nil {
			return err
		}
	}
	return out.Flush()
}

// textEntity is a Group at the time of a scrape.
type textEntity struct {
	*Group
	identity
	hash uint64
	born time.Duration
	text []byte // the identity's base labels
}

func (g *Group) textEntity(at time.Duration) textEntity {
	generation := g.Generation(at)
	e := textEntity{
		Group: g, identity: g.identify(generation),
		hash: mix(g.hash, uint64(generation)), born: g.pod.born(generation, g.hash),
	}
	for _, l := range e.base {
		e.text = appendLabel(e.text, l.Name, l.Value)
	}
	return e
}

func (t *Target) writeFamily(out *bufio.Writer, f *family, entities []textEntity, at time.Duration) error {
	var line []byte
	headed := false
	for i := range entities {
		e := &entities[i]
		span := e.layout.spans[f]
		for j := span[0]; j < span[1]; j++ {
			line = line[:0]
			if !headed {
				line = append(line, "# HELP "+f.name+" "+f.help+"\n# TYPE "+f.name+" "+f.kind()+"\n"...)
				headed = true
			}
			line = e.appendLine(line, &e.layout.templates[j], t.cluster.cfg.Start, at)
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *textEntity) appendLine(b []byte, t *template, start time.Time, at time.Duration) []byte {
	b = append(b, t.name...)
	open := len(b)
	b = append(b, '{')
	b = append(b, e.text...)
	for _, name := range t.family.facts {
		b = appendLabel(b, name, e.facts[name])
	}
	for _, l := range t.labels {
		b = appendLabel(b, l.Name, l.Value)
	}
	if t.part == bucket {
		b = appendLabel(b, labels.BucketLabel, t.leText)
	}
	if len(b) == open+1 {
		b = b[:open] // No labels, no braces.
	} else {
		b[len(b)-1] = '}' // In place of the last comma.
	}
	b = append(b, ' ')
	b = appendFloat(b, t.value(e.hash, start, e.born, at))
	return append(b, '\n')
}

// appendLabel appends name="value" and a comma. The model's values need no
// escapes.
func appendLabel(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, '=', '"')
	b = append(b, value...)
	return append(b, '"', ',')
}
