// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"runtime"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
)

func TestGOMAXPROCSIsRaisedWhereNobodyHasLimitedIt(t *testing.T) {
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
		"all processors of the machine":  {"auto", "", all, max(all, 4)},
		"an operator's GOMAXPROCS":       {"auto", "2", 2, 2},
		"not as many as the machine has": {"auto", "", all - 1, all - 1},
		"off":                            {"off", "", 1, 1},
		"a number":                       {"3", "1", 1, 3},
		"a number that there is already": {"3", "", 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tc.env)
			runtime.GOMAXPROCS(tc.before)
			flag := limit{hasAuto: true}
			require.NoError(t, flag.Set(tc.flag))
			raiseProcs(flag, promslog.NewNopLogger())
			require.Equal(t, tc.want, runtime.GOMAXPROCS(0))
		})
	}
}
