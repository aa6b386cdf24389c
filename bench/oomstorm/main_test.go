// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == clients.Word { // The clients' process of a test.
		main()
	}
	path, err := filepath.Abs("testdata/path")
	if err != nil {
		panic(err)
	}
	os.Setenv("PATH", path+string(filepath.ListSeparator)+os.Getenv("PATH"))
	testscript.Main(m, map[string]func(){"oomstorm": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true})
}

// figure reads one from the benchmark format, by the name of the line.
func figure(t *testing.T, out *bytes.Buffer, name string) map[string]float64 {
	t.Helper()
	r := benchfmt.NewReader(bytes.NewReader(out.Bytes()), "stdout")
	values := map[string]float64{}
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			if v, ok := rec.Value(name); ok {
				values[string(rec.Name)] = v
			}
		case *benchfmt.SyntaxError:
			require.NoError(t, rec)
		}
	}
	require.NoError(t, r.Err())
	return values
}
