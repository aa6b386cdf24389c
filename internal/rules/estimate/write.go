// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/promguard/promguard/internal/cli"
)

// Write writes the estimate, as text unless the format is cli.JSON.
func (e *Estimate) Write(w io.Writer, format string) error {
	if format == cli.JSON {
		return cli.WriteJSON(w, e)
	}
	return e.writeText(w)
}

func (e *Estimate) writeText(w io.Writer) error {
	var b strings.Builder
	if e.AlreadyDropped > 0 {
		fmt.Fprintf(&b, "%d SERIES ARE DROPPED ALREADY, by drop rules or metric_relabel_configs of the server: they cannot be counted, and below is what would go in addition.\n\n", e.AlreadyDropped)
	}
	fmt.Fprintf(&b, "Profile %s on %s:\n\n", e.Profile, e.Source)
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "SERIES\tSAMPLES/S\tMEMORY\tWAL/DAY\tBLOCKS/DAY\t  RULE")
	nothing := 0
	for _, r := range e.Rules {
		mark := ""
		switch {
		case r.Unknown == "" && r.Approximate == "" && r.Series == 0:
			nothing++
			continue
		case r.Unknown != "" && r.Series == 0:
			fmt.Fprintf(tw, "?\t?\t?\t?\t?\t  %s (%s)\n", r.ID, r.Class)
			continue
		case r.Unknown != "":
			mark = ">="
		case r.Approximate != "":
			mark = "~"
		}
		fmt.Fprintf(tw, "%s%s\t  %s (%s)\n", mark, r.columns(), r.ID, r.Class)
	}
	switch nothing {
	case 0:
	case 1:
		fmt.Fprintf(tw, "%s\t  1 rule that finds nothing to drop\n", Saving{}.columns())
	default:
		fmt.Fprintf(tw, "%s\t  %d rules that find nothing to drop\n", Saving{}.columns(), nothing)
	}
	mark := ""
	if e.ExitCode() != 0 {
		mark = ">="
	}
	fmt.Fprintf(tw, "%s%s\t  dropped\n", mark, e.Total.columns())
	fmt.Fprintf(tw, "%s\t  of all\n", e.Of.columns())
	if err := tw.Flush(); err != nil {
		return err
	}
	e.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Saving) columns() string {
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", s.Series, rate(s.SamplesPerSecond), bytes(s.MemoryBytes), bytes(s.WALBytesPerDay), bytes(s.BlockBytesPerDay))
}

func (e *Estimate) writeNotes(b *strings.Builder) {
	b.WriteByte('\n')
	if e.Of.Series > 0 {
		fmt.Fprintf(b, "%.1f %% of the series and %.1f %% of the samples go.\n",
			share(float64(e.Total.Series), float64(e.Of.Series)), share(e.Total.SamplesPerSecond, e.Of.SamplesPerSecond))
	}
	if churned := e.HeadSeries - e.Of.Series; churned > 0 && e.Of.Series > 0 {
		fmt.Fprintf(b, "Series and memory are those scraped now. In memory there are %d series, %.1f times as many: the others have ended, or are recorded, and are counted nowhere here.\n",
			e.HeadSeries, float64(e.HeadSeries)/float64(e.Of.Series))
	}
	fmt.Fprintf(b, "Memory, of %s: per series %.0f bytes of heap in use in a head two hours old and %.0f in the scrape cache, of which %.0f stay when it is dropped; at GOGC=75 the process may hold 1.75 times as much. WAL: %.1f bytes per sample (a modelled cluster). Blocks: %.1f bytes per sample (%s).\n",
		e.Sizes.Build, e.Sizes.HeadBytesPerSeries, e.Sizes.ScrapeCacheBytesPerSeries, e.Sizes.DroppedBytesPerSeries, e.Sizes.WALBytesPerSample, e.Sizes.BlockBytesPerSample, e.Sizes.BlockSource)
	for _, n := range e.Notes {
		fmt.Fprintln(b, n)
	}
	for _, r := range e.Rules {
		if r.Approximate != "" {
			fmt.Fprintf(b, "~ %s: %s.\n", r.ID, r.Approximate)
		}
	}
	unknown := 0
	for _, r := range e.Rules {
		if r.Unknown != "" {
			unknown++
			fmt.Fprintf(b, "? %s: %s.\n", r.ID, r.Unknown)
		}
	}
	if unknown > 0 {
		fmt.Fprintf(b, "COULD NOT COUNT all of %d of %d rules.\n", unknown, len(e.Rules))
	}
}

func share(part, all float64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * part / all
}

func rate(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// bytes writes a number of bytes with a binary prefix.
func bytes(v float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 || unit == "TiB" {
			digits := 1
			if unit == "B" || v >= 100 || v == 0 {
				digits = 0
			}
			return strconv.FormatFloat(v, 'f', digits, 64) + " " + unit
		}
		v /= 1024
	}
	return ""
}
