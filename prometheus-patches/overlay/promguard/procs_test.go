// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGOMAXPROCSMayBeRaisedWhereNobodyHasLimitedIt(t *testing.T) {
	all := runtime.NumCPU()
	if all == 1 {
		t.Skip("there is no less than one processor")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, tc := range map[string]struct {
		flag   string
		env    string
		before int
		want   int
	}{
		"all processors of the machine":  {"auto", "", all, raisedTo(all)},
		"an operator's GOMAXPROCS":       {"auto", "2", 2, 0},
		"not as many as the machine has": {"auto", "", all - 1, 0},
		"off":                            {"off", "", 1, 0},
		"a number":                       {"3", "1", 1, 3},
		"a number that there is already": {"3", "", 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tc.env)
			runtime.GOMAXPROCS(tc.before)
			flag := limit{hasAuto: true}
			require.NoError(t, flag.Set(tc.flag))
			require.Equal(t, tc.want, crowdProcs(flag))
		})
	}
}

func raisedTo(all int) int {
	if all >= 4 {
		return 0
	}
	return 4
}
