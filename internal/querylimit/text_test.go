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
				require.Nil(t, p.CheckText("up", `rate(x{a=~"b|c"}[5m])`))
				rs := p.CheckText(over[limit])
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

func TestOperatorsAndRegexSizeAddUpOverAllTextsOfARequest(t *testing.T) {
	p := newPolicy(t, func(o *Options) {
		o.QueryOperators.Max, o.RegexSize.Max = 3, 2500
	})
	require.Nil(t, p.CheckText("a+a", "a+a"))
	require.Error(t, p.CheckText("a+a+a", "a+a+a").Err())
	require.Nil(t, p.CheckText(`{a=~"x{1000}"}`))
	require.Error(t, p.CheckText(`{a=~"x{1000}"}`, `{a=~"x{1000}"}`).Err())
	require.Error(t, p.CheckText(`{a=~"x{1000}"}`, `label_replace(a, "b", "$1", "c", "(x{1000})(y{1000})")`).Err())
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
		require.ErrorContains(t, p.CheckText(text).Err(), "Limit "+limit+":")
	}
	require.Nil(t, p.CheckText("a+a"))
}
