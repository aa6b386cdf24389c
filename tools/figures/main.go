// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command figures keeps what benchmarks have measured and writes the tables of README
// and docs from it. make figures runs it.
//
// docs/figures/SET.txt is what a benchmark printed, in Go's benchmark format, below lines
// that say of which version, when, and on what it was measured. docs/figures/TABLE.tmpl
// is a table, which stands in a page between <!-- figures TABLE --> and <!-- /figures -->.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

func main() {
	os.Exit(cli.Code(os.Stderr, "figures", run(os.Args[1:], os.Stdout)))
}

func run(args []string, stdout io.Writer) error {
	app := cli.New("figures", "Keep what benchmarks have measured, and write the tables of README and docs.", stdout, os.Stderr)
	root := app.Flag("root", "The repository.").Default(".").String()
	record := app.Command("record", "Run a benchmark and keep what it prints as docs/figures/SET.txt, if it succeeds.")
	set := record.Arg("set", "Name of the set.").Required().String()
	command := record.Arg("command", "Command, behind --.").Required().Strings()
	render := app.Command("render", "Write the tables.")
	chosen, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if chosen == render.FullCommand() {
		return renderPages(*root)
	}
	return recordSet(*root, *set, *command, stdout)
}

func recordSet(root, set string, command []string, stdout io.Writer) error {
	version, err := currentVersion(root)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "version: %s\ncommit: %s\ndate: %s\nos: %s/%s\ncpus: %d\nmemory: %s\n",
		version, commit(root), time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), memory())
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // Ctrl-C reaches it, too.
	cmd.Dir, cmd.Stderr, cmd.Stdout = root, os.Stderr, io.MultiWriter(stdout, &out)
	exit := new(exec.ExitError) // Expectations that are not met are a result, too.
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	if !bytes.Contains(out.Bytes(), []byte("\nBenchmark")) {
		return fmt.Errorf("%s printed no result", command[0])
	}
	return os.WriteFile(filepath.Join(root, figuresDir, set+".txt"), out.Bytes(), 0o644)
}

// commit is what is checked out, with a mark if it was changed.
func commit(root string) string {
	out, err := exec.Command("git", "-C", root, "describe", "--always", "--dirty", "--exclude=*").Output() //nolint:noctx // It is short.
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

var totalMemory = regexp.MustCompile(`MemTotal: +(\d+) kB`)

// memory is that of the machine, as Linux tells it.
func memory() string {
	text, _ := os.ReadFile("/proc/meminfo")
	found := totalMemory.FindSubmatch(text)
	if found == nil {
		return "unknown"
	}
	kib, _ := strconv.ParseFloat(string(found[1]), 64) // They are digits.
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// currentVersion is that of the code: upstream's, and the release of ours.
func currentVersion(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "prometheus-patches/UPSTREAM"))
	if err != nil {
		return "", err
	}
	find := func(key string) string {
		found := regexp.MustCompile(`(?m)^` + key + `\s+v?(\S+)$`).FindSubmatch(text)
		if found == nil {
			return ""
		}
		return string(found[1])
	}
	return find("tag") + "+" + find("release"), nil
}
