// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package didyoumean

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestAMistypedWordIsFoundAndAStrangeOneIsNot(t *testing.T) {
	known := []string{"serve", "check", "explain", "--config.file", "--upstream.url", "--upstream.probe", "limits", "identity", "max_bytes"}
	for word, want := range map[string]string{
		"sevre": "serve", "serv": "serve", "chekc": "check", "--config-file": "--config.file", "--upstream.ulr": "--upstream.url",
		"--upstreem.url": "--upstream.url", "Limits": "limits", "limit": "limits", "identiy": "identity", "maxbytes": "max_bytes",
		"surf": "", "--nothing": "", "": "", "x": "",
	} {
		hint := ""
		if want != "" {
			hint = ", did you mean " + want + "?"
		}
		require.Equal(t, hint, Hint(word, known), word)
	}
}

func TestAnUnknownKeyOfYAMLIsToldWithoutTheNamesOfTypes(t *testing.T) {
	type inner struct {
		Regex string `yaml:"regex,omitempty"`
		Self  *inner `yaml:"-"`
	}
	var into struct {
		Rules []inner `yaml:"rules"`
	}
	decode := func(text string) error {
		dec := yaml.NewDecoder(bytes.NewBufferString(text))
		dec.KnownFields(true)
		return Field(dec.Decode(&into), &into)
	}
	require.NoError(t, decode("rules: []"))
	require.EqualError(t, decode("ruels:\n- regexp: x\nrules:\n- regexp: x\n  nothing: 1\n"),
		"yaml: unmarshal errors:\n  line 1: unknown key \"ruels\", did you mean rules?\n"+
			"  line 4: unknown key \"regexp\", did you mean regex?\n  line 5: unknown key \"nothing\"")
	require.EqualError(t, decode("rules: 1"), "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!int `1` into []didyoumean.inner")
}
