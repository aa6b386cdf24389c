// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy/config"
)

func checkCommands(app *kingpin.Application, stdout io.Writer) []subcommand {
	check := app.Command("check", "Check files without serving.")
	clause := check.Command("config", "Check policy files; exit 1 if one of them would be refused.")
	files := clause.Flag("config.file", "Policy file, such as promguard.yml. May be repeated.").Required().Strings()
	return []subcommand{{clause, func() error { return checkConfig(*files, stdout) }}}
}

func checkConfig(files []string, stdout io.Writer) error {
	var refused cli.Problems
	for _, path := range files {
		c, err := config.Load(path)
		if err != nil {
			errs := config.Errors{err}
			errors.As(err, &errs)
			refused = append(refused, errs...)
			continue
		}
		fmt.Fprintf(stdout, "%s: ok\n", path)
		if dir := filepath.Dir(c.QueryLog.File); c.QueryLog.File != "" && !isDirectory(dir) {
			fmt.Fprintf(stdout, "%s: query_log.file: there is no directory %s on this machine; promguard does not start without it\n", path, dir)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return refused
}

// isDirectory also follows links. The proxy may run elsewhere, so that what is
// missing here is no mistake.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
