// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
)

// mostValues is how many values Grafana asks for.
const mostValues = 40_000

var labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

// Values are what the variables of a dashboard stand for as it opens, by name. Those
// that are chosen from the values of a label are asked for, also where all of them
// are chosen, because Grafana does; with the values of those that come before them.
func (s Source) Values(ctx context.Context, d *Dashboard) (map[string]string, error) {
	values := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		definition, err := fill(v.Definition, values)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		offered, err := s.offered(ctx, d, definition)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		chosen := v.Current.Value
		switch {
		case chosen == "$__all" && len(offered) > 0:
			chosen = v.AllValue
		case chosen == "" && len(offered) > 0:
			chosen = offered[0]
		case v.Name == "cluster" && len(offered) == 0: // There is one, without a label.
		case !slices.Contains(offered, chosen):
			return nil, fmt.Errorf("variable %s: %s is none of %q", v.Name, chosen, offered)
		}
		values[v.Name] = chosen
	}
	return values, nil
}

// offered are the values that a definition gives, sorted.
func (s Source) offered(ctx context.Context, d *Dashboard, definition string) ([]string, error) {
	parts := labelValues.FindStringSubmatch(definition)
	if parts == nil {
		return nil, fmt.Errorf("%s: only label_values(selector, label) is known", definition)
	}
	query := url.Values{"match[]": {parts[1]}, "start": {seconds(s.From)}, "end": {seconds(s.To)}, "limit": {strconv.Itoa(mostValues)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/label/"+parts[2]+"/values?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Dashboard-Uid", d.UID)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error    string
		Warnings []string
		Data     []string
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || len(answer.Warnings) > 0 {
		return nil, fmt.Errorf("%s: %s: %s %q", definition, resp.Status, answer.Error, answer.Warnings)
	}
	slices.Sort(answer.Data)
	return answer.Data, nil
}
