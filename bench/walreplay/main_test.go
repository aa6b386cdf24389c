// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/internal/binary"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"walreplay": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true})
}

func TestBinariesTakeTurnsAndTheFirstOneIsNotAlwaysFirst(t *testing.T) {
	steps := schedule(runConfig{Binaries: []binary.Binary{{Name: "a"}, {Name: "b"}}, GOMAXPROCS: []int{1, 4}, Count: 2})
	var order []string
	for _, s := range steps {
		order = append(order, s.binary.Name+strconv.Itoa(s.gomaxprocs))
	}
	require.Equal(t, []string{"a1", "b1", "a4", "b4", "b1", "a1", "b4", "a4"}, order)
}
