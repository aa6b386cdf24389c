// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bom

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// NoAssertion is what SPDX has for a licence that is not known by its name.
// The text is there all the same.
const NoAssertion = "NOASSERTION"

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|unlicense|copying|copyright)([._-][a-z0-9._-]+)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([._-][a-z0-9._-]+)?$`)
	sourceFile  = regexp.MustCompile(`(?i)\.(go|ya?ml|json|tmpl|sh|s|c|h)$`)
)

// licencesIn reads the licences and notices of a module: those at its root, and
// those of code that it took from others.
func licencesIn(dir string) ([]Licence, error) {
	var found []Licence
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := path.Base(file)
		if d.IsDir() {
			// Nothing below these gets into a binary.
			if name == "testdata" || (strings.HasPrefix(name, ".") && file != ".") {
				return fs.SkipDir
			}
			return nil
		}
		isLegal := licenceFile.MatchString(name) || noticeFile.MatchString(name)
		if !d.Type().IsRegular() || !isLegal || sourceFile.MatchString(name) {
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		found = append(found, Licence{File: file, Text: string(text)})
		return nil
	})
	return found, err
}

// isLicensed says whether a licence covers the whole: one at the root.
func isLicensed(licences []Licence) bool {
	return slices.ContainsFunc(licences, func(l Licence) bool {
		return licenceFile.MatchString(l.File) && strings.TrimSpace(l.Text) != ""
	})
}

// Phrases that only one licence has, without the white space between words.
// The order matters: a text is of the first licence whose phrases it all has.
var knownLicences = []struct {
	id      string
	phrases []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"}},
	{"MPL-2.0", []string{"Mozilla Public License", "Version 2.0", "Incompatible With Secondary Licenses"}},
	{"BSD-3-Clause", []string{
		"Redistribution and use in source and binary forms", "with or without modification, are permitted",
		"may be used to endorse or promote products derived from", "THIS SOFTWARE IS PROVIDED BY",
	}},
	{"BSD-2-Clause", []string{
		"Redistribution and use in source and binary forms", "with or without modification, are permitted",
		"Redistributions in binary form must reproduce the above copyright", "THIS SOFTWARE IS PROVIDED BY",
	}},
	{"MIT", []string{
		"Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files",
		"THE SOFTWARE IS PROVIDED \"AS IS\"",
	}},
	{"ISC", []string{
		"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted",
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR",
	}},
	{"ISC", []string{
		"Permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted",
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR",
	}},
}

// identify returns the SPDX identifier of a licence's text, or "" where the
// text is none of the few that nearly all modules are under, or several.
func identify(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	found := map[string]bool{}
	for _, known := range knownLicences {
		missing := func(phrase string) bool { return !strings.Contains(words, phrase) }
		if slices.ContainsFunc(known.phrases, missing) {
			continue
		}
		// The three clauses of the one contain the two of the other.
		if known.id == "BSD-2-Clause" && found["BSD-3-Clause"] {
			continue
		}
		found[known.id] = true
	}
	if len(found) != 1 {
		return ""
	}
	for id := range found {
		return id
	}
	return ""
}

// declared is the SPDX expression of a component's own licence: what its files
// at the root say, if they all say something that is known.
func declared(licences []Licence) string {
	var ids []string
	for _, l := range licences {
		if strings.Contains(l.File, "/") || !licenceFile.MatchString(l.File) {
			continue
		}
		id := identify(l.Text)
		if id == "" {
			return NoAssertion
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) != 1 {
		// Of several texts, which holds for what is not to be told from here.
		return NoAssertion
	}
	return ids[0]
}

// Texts renders the licences of all components as one text: each text once,
// after the names of all that come under it. The same components give the same
// text.
func Texts(components []Component) string {
	owners := map[string][]string{}
	var texts []string
	for _, c := range components {
		for _, l := range c.Licences {
			text := strings.TrimSpace(strings.ReplaceAll(l.Text, "\r\n", "\n"))
			if _, known := owners[text]; !known {
				texts = append(texts, text)
			}
			owners[text] = append(owners[text], fmt.Sprintf("%s %s, %s", c.Name, c.Version, l.File))
		}
	}
	var out strings.Builder
	for i, text := range texts {
		if i > 0 {
			out.WriteString("\n" + strings.Repeat("=", 80) + "\n\n")
		}
		for _, owner := range owners[text] {
			out.WriteString(owner + "\n")
		}
		out.WriteString("\n" + text + "\n")
	}
	return out.String()
}
