// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An answered request without a time is no evidence, since it may be of any day.
const longAndTimeless = `{"endpoint":"query","class":"query","tenant":"small","queries":["rate(up[20d])"],"code":200,"took_seconds":0.1,"bytes":100}` + "\n"

func TestALimitIsWithdrawnThatRefusesWhatWasAnswered(t *testing.T) {
	const policy = "limits:\n  range: {mode: enforce, max: 32d}\n  points: {mode: enforce, max: 50000}\n"
	log := aLog(2000, "", 24)
	s, err := suggest(t, policy, log, nil)
	require.NoError(t, err)
	require.Equal(t, "enforce 16d", line(t, s, "", "range").Then)
	require.Equal(t, []int{2000, 0, 0}, []int{s.Proof.Answered, s.Proof.Worse, s.Proof.Unanswered})

	log += longAndTimeless
	s, err = suggest(t, policy, log, nil)
	require.NoError(t, err)
	require.Empty(t, line(t, s, "", "range").Then)
	require.Equal(t, `1 of the requests that were answered would get less, such as query "rate(up[20d])"`, line(t, s, "", "range").Why)
	require.NotContains(t, string(s.Fragment), " range:")
	require.Equal(t, "enforce 22000", line(t, s, "", "points").Then, "the others stay")
	require.Equal(t, []int{2001, 0}, []int{s.Proof.Answered, s.Proof.Worse})
	var b strings.Builder
	s.WriteForecast(&b)
	require.Contains(t, b.String(), `
checked: 2001 requests that were answered; none of them is newly refused or gets a shorter answer
not checked: 0 not answered in full, 0 malformed, 0 redacted, cut or of other endpoints, 0 evaluations of rules by the server itself, 0 lines that are not entries
`)
}

func TestALimitIsWithdrawnForTenantsTooIfItRefusesWhatOneWasAnswered(t *testing.T) {
	const policy = "limits:\n  range: {mode: observe, max: 32d}\nrules:\n- name: r\n  match: {tenant: small}\n  limits:\n    range: {mode: enforce}\n"
	s, err := suggest(t, policy, aLog(2000, "", 48)+aLog(200, "small", 4)+longAndTimeless, func(o *Options) { o.MinRequests = 100 })
	require.NoError(t, err)
	require.NotContains(t, string(s.Fragment), " range:")
	require.Zero(t, s.Proof.Worse)
}

func TestTheProofTellsThatFastRequestsAreLeftOut(t *testing.T) {
	slow := strings.ReplaceAll(aLog(1000, "", 24), `"code":200`, `"slower_than_seconds":0.1,"code":200`)
	s, err := suggest(t, "", slow, nil)
	require.NoError(t, err)
	var b strings.Builder
	s.WriteForecast(&b)
	require.Contains(t, b.String(), "\nnot checked either: fast requests, which the log leaves out\n")
}
