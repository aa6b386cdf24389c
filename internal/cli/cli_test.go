// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMistypedWordOfACommandLineIsToldWithTheOneThatWasMeant(t *testing.T) {
	for args, want := range map[string]string{
		"check config":                "check config",
		"chekc config":                `expected command but got "chekc", did you mean check? (see prog --help)`,
		"check confg":                 `expected command but got "confg", did you mean config? (see prog check --help)`,
		"check config --config.fiel=": "unknown long flag '--config.fiel', did you mean --config.file? (see prog check config --help)",
		"check config --upstream.url": "unknown long flag '--upstream.url' (see prog check config --help)",
		"serve --upstream.ulr=x":      "unknown long flag '--upstream.ulr', did you mean --upstream.url? (see prog serve --help)",
		"serve --secrte":              "unknown long flag '--secrte' (see prog serve --help)",
		"serve --count=many":          `strconv.ParseFloat: parsing "many": invalid syntax (see prog serve --help)`,
	} {
		app := New("prog", "", io.Discard, io.Discard)
		check := app.Command("check", "").Command("config", "")
		check.Flag("config.file", "").String()
		serve := app.Command("serve", "")
		serve.Flag("upstream.url", "").String()
		serve.Flag("count", "").Int()
		serve.Flag("secret", "").Hidden().String()
		command, err := Parse(app, strings.Fields(args))
		if err == nil {
			require.Equal(t, want, command)
			continue
		}
		require.EqualError(t, err, want)
		require.Equal(t, 2, Code(io.Discard, "prog", err))
	}
}

func TestEachErrorIsOneLineAndHasItsExitCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{errors.New("a"), 1, "prog: a\n"},
		{errors.New("yaml:\n  line 1: a\n  line 2: b"), 1, "prog: yaml: line 1: a; line 2: b\n"},
		{Misuse(errors.New("a")), 2, "prog: a\n"},
		{Misuse(nil), 0, ""},
		{Problems{errors.New("a"), errors.New("b")}, 1, "prog: a\nprog: b\n"},
		{Misuse(Problems{errors.New("a"), errors.New("b")}), 2, "prog: a\nprog: b\n"},
		{Exit(1), 1, ""},
		{fmt.Errorf("run: %w", NewTail(errors.New("it stopped"), "a\nb\n")), 1, "prog: run: it stopped; its last log lines:\n  a\n  b\n"},
	} {
		var out strings.Builder
		require.Equal(t, tc.code, Code(&out, "prog", tc.err))
		require.Equal(t, tc.want, out.String())
	}
}
