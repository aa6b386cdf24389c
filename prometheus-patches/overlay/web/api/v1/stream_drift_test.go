// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"os"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// The stream encodes vectors, matrices, samples and series with the codec's own
// functions, and leaves everything else to it. A type that is new in this list must
// be looked at in streamEncoder.value.
func TestStreamKnowsEveryEncoderOfTheCodec(t *testing.T) {
	source, err := os.ReadFile("json_codec.go")
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`Register\w*\((?:"([^"]+)")?`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	require.Equal(t, []string{
		"promql.Vector", "promql.Matrix", "promql.Series", "promql.Sample", "promql.FPoint", "promql.HPoint", "exemplar.Exemplar", "labels.Labels",
	}, names)
	for _, dir := range []string{".", "../../../util/jsonutil", "../../../promql"} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if e.IsDir() || e.Name() == "json_codec.go" || e.Name() == "stream_drift_test.go" {
				continue
			}
			source, err := os.ReadFile(dir + "/" + e.Name())
			require.NoError(t, err)
			require.NotContains(t, string(source), "jsoniter.Register", e.Name())
		}
	}
}

// Results and the structs that the stream takes apart must not gain an encoding of
// their own that it would pass by.
func TestStreamTakesNothingApartThatHasItsOwnEncoding(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[*QueryData](), reflect.TypeFor[*TargetDiscovery](), reflect.TypeFor[*RuleDiscovery](), reflect.TypeFor[*Response](), reflect.TypeFor[Response](),
		reflect.TypeFor[promql.Vector](), reflect.TypeFor[promql.Matrix](),
	} {
		require.False(t, hasOwnEncoding(typ), typ)
	}
}

type ownList []string

func (ownList) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

type ownMap map[string]int

func (ownMap) MarshalText() ([]byte, error) { return []byte("own"), nil }

func TestStreamLeavesTypesWithTheirOwnEncodingToTheCodec(t *testing.T) {
	for _, data := range []any{ownList{"a"}, ownMap{"a": 1}, ownList(nil)} {
		resp := &Response{Status: statusSuccess, Data: data}
		want, err := JSONCodec{}.Encode(resp)
		require.NoError(t, err)
		_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
		got, err := stream(ctx, resp)
		require.NoError(t, err)
		require.Equal(t, string(want), got)
	}
}
