// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/promapi"
)

// maxRows bounds how many series are asked for at once. They are sent, whereas a
// count is a number.
const maxRows = 10_000

// ReadLive reads the series of a server, with their last values, of the metric names
// for which wanted is true. Names with a colon are left out: they are recorded, and
// the recording rules are evaluated anew.
func ReadLive(ctx context.Context, api *promapi.Client, wanted func(name string) bool) ([]Series, error) {
	names, err := api.Names(ctx)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, ":") || !wanted(name) })
	types, err := api.Types(ctx)
	if err != nil {
		return nil, err
	}
	most := api.Budget().Series
	head, err := api.Head(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err // Otherwise sizes are not known, and every name is asked for alone.
	}
	var all []Series
	for _, b := range head.Batches(names, min(most, maxRows)) {
		if b.Series > most {
			return nil, fmt.Errorf("%s: %s has up to %d series, more than the %d that one query may read: give a scrape with --exposition, or a higher --max-series",
				api, b.Names[0], b.Series, most)
		}
		rows, err := api.Query(ctx, promapi.Selector(b.Names))
		if err != nil {
			return nil, fmt.Errorf("the series of %s and others could not be read: %w", b.Names[0], err)
		}
		for _, r := range rows {
			all = append(all, Series{Labels: r.Labels, Value: r.Value, Counter: isCounter(r.Labels, types)})
		}
	}
	return all, nil
}
