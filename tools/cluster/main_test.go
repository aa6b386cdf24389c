// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Isolated(m.Run)) }
