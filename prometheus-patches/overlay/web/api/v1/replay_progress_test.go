// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"
	"time"

	jsoniter "github.com/json-iterator/go"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/tsdb"
)

func TestReplayProgressIsAddedToTheStatus(t *testing.T) {
	status := walReplayStatus{Min: 3, Max: 9, Current: 4}
	for _, tc := range []struct {
		progress *tsdb.WALReplayProgress
		want     string
	}{
		{nil, `{"min":3,"max":9,"current":4}`},
		{&tsdb.WALReplayProgress{}, `{"min":3,"max":9,"current":4,"percent":0,"rate":0,"eta":0}`},
		{
			&tsdb.WALReplayProgress{Ratio: 0.25, Rate: 1 << 20, ETA: 90 * time.Second},
			`{"min":3,"max":9,"current":4,"percent":25,"rate":1048576,"eta":90}`,
		},
	} {
		got, err := jsoniter.ConfigCompatibleWithStandardLibrary.Marshal(withReplayProgress(status, tc.progress))
		require.NoError(t, err)
		require.Equal(t, tc.want, string(got))
	}
}
