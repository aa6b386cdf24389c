// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShorterOfRequestedAndConfiguredDeadlineWins(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.Deadlines[ClassStatus] = 0 })
	for _, tc := range []struct {
		name      string
		class     Class
		requested time.Duration
		want      time.Duration
	}{
		{"none requested", ClassQuery, 0, 2 * time.Minute},
		{"less requested", ClassQuery, time.Second, time.Second},
		{"more requested", ClassMetadata, time.Hour, 30 * time.Second},
		{"nothing configured", ClassStatus, time.Hour, time.Hour},
		{"neither", ClassStatus, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, p.Deadline(tc.class, tc.requested))
		})
	}
}

func TestInvalidOptionIsNamedWithItsValueAndWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"negative deadline", func(o *Options) { o.Deadlines[ClassQuery] = -time.Second }, `deadline of class query is -1s: use 0 for none, or a positive duration`},
		{"no query bytes", func(o *Options) { o.QueryBytes.Max = 0 }, `query_bytes is 0: use 1 to 1048576`},
		{"too many query bytes", func(o *Options) { o.QueryBytes.Max = 2 << 20 }, `query_bytes is 2097152: use 1 to 1048576`},
		{"too many operators", func(o *Options) { o.QueryOperators.Max = 20_000 }, `query_operators is 20000: use 1 to 10000`},
		{"no regular expressions", func(o *Options) { o.RegexSize.Max = 0 }, `regex_size is 0: use 1 to 1000000`},
		{"no request bytes", func(o *Options) { o.RequestBytesMax = 0 }, `request_bytes is 0: use 1 to 3495253`},
		{"too many request bytes", func(o *Options) { o.RequestBytesMax = 4 << 20 }, `request_bytes is 4194304: use 1 to 3495253`},
		{"too many parameters", func(o *Options) { o.ParametersMax = 10_001 }, `parameters is 10001: use 1 to 10000`},
		{"no parameters", func(o *Options) { o.ParametersMax = 0 }, `parameters is 0: use 1 to 10000`},
		{"bad label", func(o *Options) { o.EqualityLabels = []string{""} }, `equality label "" is not a label name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := DefaultOptions()
			tc.change(&opts)
			_, err := New(opts)
			require.EqualError(t, err, tc.want)
		})
	}
}

func TestModeOffLooksAtNothing(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.Selectivity = ModeOff })
	require.Nil(t, p.Check(parseSelector(t, `{le!=""}`)))
}

func TestModeNamesRoundTripAndUnknownOnesAreListed(t *testing.T) {
	for _, m := range Modes() {
		back, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	_, err := ParseMode("Enforce")
	require.EqualError(t, err, `unknown mode "Enforce": use one of off, observe, warn, enforce`)
}

func TestFirstEnforcedRefusalDecides(t *testing.T) {
	observed := &Refusal{Limit: "a", Mode: ModeObserve}
	enforced := &Refusal{Limit: "b", Mode: ModeEnforce}
	require.NoError(t, Refusals{observed}.Err())
	require.Equal(t, enforced, Refusals{observed, enforced}.Err())
	require.NoError(t, Refusals(nil).Err())
}

func TestDeadlineRefusalSaysWhoSetTheDeadline(t *testing.T) {
	p := newPolicy(t, nil)
	require.Contains(t, p.RefuseDeadline(ClassMetadata, "/api/v1/series", 30*time.Second).Error(), "limits.deadline.metadata")
	require.Contains(t, p.RefuseDeadline(ClassMetadata, "/api/v1/series", time.Second).Error(), "own timeout")
}
