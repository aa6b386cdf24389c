// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wrong value of each command, and what is said of it.
var wrongValues = map[string]struct{ args, says string }{
	"promguard serve":          {"--upstream.url=http://x --upstream.probe=maybe", `--upstream.probe: unknown mode "maybe": use one of require, warn, off`},
	"promguard startup-probe":  {"--stalled-after=0s", "--stalled-after: 0s is not positive"},
	"promguard check config":   {"", "required flag(s) '--config.file' not provided"},
	"promguard explain":        {"up --start=soon", `--start: "soon" is not a time`},
	"promguard kill":           {"", "say which: give ids, or a flag such as --dashboard"},
	"promguard policy test":    {"--config.file=absent.yml", "required flag(s) '--query-log' not provided"},
	"promguard policy suggest": {"--query-log=x --min-period=long", "--min-period: not a valid duration string"},
	"promguard top":            {"--web.telemetry-address=localhost", "--web.telemetry-address localhost: use one such as 127.0.0.1:9092"},
	"promguard queries":        {"--web.telemetry-address=localhost", "--web.telemetry-address localhost: use one such as 127.0.0.1:9092"},
	"promguard rehearse":       {"--recording=. --stock=./none", "--stock: binary stock: "},
	"promguard size":           {"--nodes=7500 --output=yaml", "enum value must be one of text,json,patch"},
	"promguard rules print":    {"--profile=maximal", `unknown drop-rules profile "maximal"`},
	"promguard rules list":     {"--profile=maximal", `unknown drop-rules profile "maximal"`},
	"promguard rules inject":   {"prometheus.yml --check --profile=maximal", `unknown drop-rules profile "maximal"`},
	"promguard rules check":    {"--rule-files=x --prometheus.url=localhost:9090", "--prometheus.url: the URL of the server must be one such as http://127.0.0.1:9090"},
	"promguard rules estimate": {"--prometheus.url=127.0.0.1:9090", "--prometheus.url: the URL of the server must be one such as http://127.0.0.1:9090"},
	"promguard rules suggest":  {"--rule-files=x --prometheus.url=127.0.0.1:9090", "--prometheus.url: the URL of the server must be one such as http://127.0.0.1:9090"},
	"walreplay generate":       {"--out=x --series=few --scrapes=1", `parsing "few"`},
	"walreplay record":         {"--wal=x --out=y --objstore.file=z", `did you mean --objstore.config-file?`},
	"walreplay run":            {"--wal=x --binary=./p --count=0", "--count must be 1 or more, got 0"},
	"walreplay floor":          {"--wal=x --count=many", `strconv.ParseFloat: parsing "many": invalid syntax`},
	"walreplay verify":         {"--wal=x --binary=./a", "--binary"},
	"oomstorm run":             {"--binary=./p --scenario=everything", `"everything" is neither a file nor one of`},
	"oomstorm search":          {"--binary=./p --families=everything", `no family is called "everything"`},
	"oomstorm scenario":        {"everything", `"everything" is neither a file nor one of`},
	"demo":                     {"--scrape-interval=1ms", "--scrape-interval must be 1s or more, got 1ms"},
}

func TestEveryCommandOfEveryProgramTakesTheSameFlagsAndSaysWhatIsWrongInOneLine(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, program := range []string{"promguard", "walreplay", "oomstorm", "demo"} {
		code, stdout, stderr := commandLine(t, program, "--version")
		require.Equal(t, 0, code)
		require.Regexp(t, "^"+program+", version ", stdout+stderr)
		for _, command := range commandsOf(t, program) {
			path := append([]string{program}, command...)
			name := strings.Join(path, " ")
			seen = append(seen, name)
			t.Run(name, func(t *testing.T) {
				code, stdout, stderr := commandLine(t, append(path, "--help")...)
				require.Equal(t, 0, code)
				require.Contains(t, stdout, "Exit codes: 0 if ")
				require.Empty(t, stderr)
				for _, flag := range []string{"--config ", "--config=", "--policy", "--prometheus=", "--upstream=", "--url"} {
					require.NotContains(t, stdout, flag, "it has another name elsewhere")
				}

				requireMisuse(t, append(path, "--nothing"), "unknown long flag '--nothing' (see "+name+" --help)")
				known := flagsOf(t, path)
				for _, flag := range known {
					typo := flag[:len(flag)-2] + flag[len(flag)-1:] + flag[len(flag)-2:len(flag)-1] // Two letters swapped.
					if typo != flag && !slices.Contains(known, typo) {
						requireMisuse(t, append(path, typo+"=x"), "unknown long flag '"+typo+"', did you mean --")
					}
				}
				wrong, ok := wrongValues[name]
				require.True(t, ok, "the table lacks a wrong value")
				requireMisuse(t, append(path, strings.Fields(wrong.args)...), wrong.says)
			})
		}
	}
	require.Len(t, seen, len(wrongValues))
	requireMisuse(t, []string{"promguard", "sevre"}, `expected command but got "sevre", did you mean serve? (see promguard --help)`)
	requireMisuse(t, []string{"promguard", "rules", "chekc"}, `expected command but got "chekc", did you mean check? (see promguard rules --help)`)
}

func TestAFlagOfTheServersThatIsWrongIsOneLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ arg, says string }{
		{"--guard.api-timeout=soon", `--guard.api-timeout: "soon" is neither off nor a duration such as 30s`},
		{"--guard.api-timout=10s", "unknown long flag '--guard.api-timout', did you mean --guard.api-timeout?"},
	} {
		requireMisuse(t, []string{"prometheus", tc.arg}, tc.says)
	}
}

// requireMisuse runs a command that is to be told in one line, and to exit with 2.
func requireMisuse(t *testing.T, args []string, says string) {
	t.Helper()
	code, stdout, stderr := commandLine(t, args...)
	require.Equal(t, 2, code, "%v: %s", args, stderr)
	require.Empty(t, stdout)
	require.True(t, strings.HasPrefix(stderr, args[0]+": "), stderr)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.Contains(t, stderr, says)
}

func commandLine(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary(t, args[0]), args[1:]...)
	cmd.Dir = t.TempDir()
	var out, told strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &told
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), told.String()
	}
	require.NoError(t, err)
	return 0, out.String(), told.String()
}

// completions are what the shell offers after these words.
func completions(t *testing.T, args []string) (commands, flags []string) {
	t.Helper()
	_, words, _ := commandLine(t, append(args, "--completion-bash")...)
	_, options, _ := commandLine(t, append(args, "--completion-bash", "--")...)
	for word := range strings.FieldsSeq(words) {
		if word != "help" && !strings.HasPrefix(word, "-") {
			commands = append(commands, word)
		}
	}
	for word := range strings.FieldsSeq(options) {
		if strings.HasPrefix(word, "--") {
			flags = append(flags, word)
		}
	}
	return commands, flags
}

func flagsOf(t *testing.T, path []string) []string {
	_, flags := completions(t, path)
	return flags
}

// commandsOf returns the words of every command of a program, without those that only
// have others below them; of one without commands, no words.
func commandsOf(t *testing.T, program string, words ...string) (all [][]string) {
	below, _ := completions(t, append([]string{program}, words...))
	if len(below) == 0 {
		return [][]string{words}
	}
	for _, word := range below {
		all = append(all, commandsOf(t, program, append(slices.Clone(words), word)...)...)
	}
	return all
}
