// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimitIsOffANumberOrASizeAndAutoWhereThatMeansSomething(t *testing.T) {
	for _, tc := range []struct {
		limit limit
		text  string
		shown string
		value int64 // With 7 for auto.
		bad   string
	}{
		{text: "off", shown: "off"},
		{text: "0", shown: "off"},
		{text: "12", shown: "12", value: 12},
		{text: "auto", bad: `"auto" is neither off nor a number of at least 1`},
		{limit: limit{hasAuto: true}, text: "auto", shown: "auto", value: 7},
		{limit: limit{hasAuto: true}, text: "many", bad: `"many" is neither auto, off nor a number of at least 1`},
		{text: "-3", bad: `"-3"`},
		{text: "12MB", bad: `"12MB"`},
		{limit: limit{bytes: true}, text: "12MB", shown: "12MiB", value: 12 << 20},
		{limit: limit{bytes: true, least: 4096, leastWhy: "pages have so many"}, text: "4KB", shown: "4KiB", value: 4096},
		{limit: limit{bytes: true, least: 4096, leastWhy: "pages have so many"}, text: "off", shown: "off"},
		{limit: limit{bytes: true, least: 4096, leastWhy: "pages have so many"}, text: "1KB", bad: `"1KB" is less than 4KiB: pages have so many`},
		{limit: limit{bytes: true}, text: "4096", shown: "4KiB", value: 4096},
		{limit: limit{bytes: true}, text: "lots", bad: `"lots" is neither off nor a size such as 512MB of at least 1`},
	} {
		l := tc.limit
		err := l.Set(tc.text)
		if tc.bad != "" {
			require.ErrorContains(t, err, tc.bad)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.shown, l.String())
		require.Equal(t, tc.value, l.or(7))
	}
}
