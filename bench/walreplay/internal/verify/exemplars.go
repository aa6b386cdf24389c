// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"

	"github.com/prometheus/common/model"
)

// exemplars asks for all exemplars and returns them, one text each, by series
// and in the order of their times. There are as many as --storage.exemplars
// allows, so they are held.
func exemplars(ctx context.Context, h Head, s headStats) ([]string, error) {
	query := url.Values{"query": {`{__name__!=""}`}, "start": {seconds(s.MinTime - day)}, "end": {seconds(s.MaxTime + day)}}
	var all []string
	err := get(ctx, h, "/api/v1/query_exemplars", query, func(dec *json.Decoder) error {
		return elements(dec, func() error {
			var of struct {
				SeriesLabels map[string]string `json:"seriesLabels"`
				Exemplars    []any             `json:"exemplars"`
			}
			if err := dec.Decode(&of); err != nil {
				return err
			}
			for _, e := range of.Exemplars {
				text, err := json.Marshal([]any{of.SeriesLabels, e}) // Sorts the keys.
				if err != nil {
					return err
				}
				all = append(all, string(text))
			}
			return nil
		})
	})
	slices.Sort(all)
	return all, err
}

func compareExemplars(ctx context.Context, a, b Head, s headStats) (int, error) {
	x, err := exemplars(ctx, a, s)
	if err != nil {
		return 0, err
	}
	y, err := exemplars(ctx, b, s)
	if err != nil {
		return 0, err
	}
	for i := range max(len(x), len(y)) {
		switch {
		case i == len(y) || i < len(x) && x[i] < y[i]:
			return 0, differ("%s has the exemplar %s, and %s has not", a.Name, x[i], b.Name)
		case i == len(x) || x[i] > y[i]:
			return 0, differ("%s has the exemplar %s, and %s has not", b.Name, y[i], a.Name)
		}
	}
	return len(x), nil
}

// escaped is how the API takes a label name in a path.
func escaped(name string) string { return model.EscapeName(name, model.ValueEncodingEscaping) }
