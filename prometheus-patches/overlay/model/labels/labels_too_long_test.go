// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package labels

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func built(value string) (ls Labels, err error) {
	defer RecoverTooLong(&err)
	return FromStrings("a", value, "b", "c"), nil
}

func TestTheLongestLabelIsWhatItWasAndALongerOneIsAnError(t *testing.T) {
	longest := strings.Repeat("x", maxLength)
	ls, err := built(longest)
	require.NoError(t, err)
	require.True(t, ls.Get("a") == longest) //nolint:testifylint // It would print 16 MiB.
	require.Equal(t, "c", ls.Get("b"))

	for _, more := range []string{"x", "xx"} {
		_, err = built(longest + more)
		var tooLong TooLongError
		require.ErrorAs(t, err, &tooLong)
		require.EqualValues(t, maxLength+len(more), tooLong.Length)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	other := errors.New("other")
	require.PanicsWithError(t, other.Error(), func() {
		var err error
		defer RecoverTooLong(&err)
		panic(other)
	})
}
