// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
)

func TestTheStateSaysWhatIsOnAndNoMore(t *testing.T) {
	ask := func(opts Options) map[string]map[string]any {
		h, router := limited(t, opts), route.New()
		h.Register(router)
		s := httptest.NewServer(router)
		defer s.Close()
		_, body := get(t, s.URL+statusRoute)
		var answer struct{ Data map[string]map[string]any }
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		return answer.Data
	}
	on := ask(Options{Memory: memory.NewMonitor(memory.Auto), NewSeries: newseries.New()})
	require.Equal(t, "ok", on["memory"]["state"])
	require.Equal(t, []any{}, on["newSeries"]["culprits"])
	require.Empty(t, ask(Options{CheckText: true}))
}
