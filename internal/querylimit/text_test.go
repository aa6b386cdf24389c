// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/promqltext"
)

func TestTextOverALimitIsRefusedByMode(t *testing.T) {
	bounds := map[string]func(*Options) *Bound{
		LimitQueryBytes:     func(o *Options) *Bound { return &o.QueryBytes },
		LimitQueryOperators: func(o *Options) *Bound { return &o.QueryOperators },
		LimitRegexSize:      func(o *Options) *Bound { return &o.RegexSize },
	}
	over := map[string]string{
		LimitQueryBytes:     strings.Repeat("a", 101),
		LimitQueryOperators: "a" + strings.Repeat("+a", 40),
		LimitRegexSize:      `{a=~"x{1000}"}`,
	}
	for limit, bound := range bounds {
		for _, mode := range Modes() {
			t.Run(limit+"/"+mode.String(), func(t *testing.T) {
				p := newPolicy(t, func(o *Options) { *bound(o) = Bound{mode, 30} })
				_, rs := p.measureText(`rate(x{a=~"b|c"}[5m])`)
				require.Nil(t, rs)
				_, rs = p.measureText(over[limit])
				if mode == ModeOff {
					require.Nil(t, rs)
					return
				}
				require.Len(t, rs, 1)
				require.Equal(t, limit, rs[0].Limit)
				require.Equal(t, mode == ModeEnforce, rs.Err() != nil)
				require.Len(t, rs.Warnings(), map[bool]int{true: 1}[mode == ModeWarn])
			})
		}
	}
}

func TestRegexSizeAddsUpOverAllSelectorsOfARequest(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.RegexSize.Max = 2500 })
	refused := func(texts ...string) bool {
		_, rs, err := NewAnalyzer(0).Selectors(p, texts)
		require.NoError(t, err)
		return rs.Err() != nil
	}
	require.False(t, refused(`{a=~"x{1000}"}`))
	require.True(t, refused(`{a=~"x{1000}"}`, `{a=~"x{1000}"}`))
}

func TestTextOverACeilingIsRefusedInEveryMode(t *testing.T) {
	p := newPolicy(t, func(o *Options) {
		o.QueryBytes, o.QueryOperators, o.RegexSize = Bound{ModeOff, 1}, Bound{ModeOff, 1}, Bound{ModeOff, 1}
	})
	for limit, text := range map[string]string{
		LimitQueryBytes:     strings.Repeat("a", promqltext.MaxBytes+1),
		LimitQueryOperators: "a" + strings.Repeat("+a", promqltext.MaxOperators+1),
		LimitRegexSize:      `{a=~"` + strings.Repeat("x{1000}", 1001) + `"}`,
	} {
		_, rs := p.measureText(text)
		require.ErrorContains(t, rs.Err(), "Limit "+limit+":")
	}
	_, rs := p.measureText("a+a")
	require.Nil(t, rs)
}
