// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package policysuggest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/config"
	"github.com/promguard/promguard/internal/policytest"
)

// Suggest writes limits into the text of a policy file, and replays the log from
// which the evidence is against them: log returns it from its beginning. A limit by
// which a request gets less that was answered is withdrawn, and what is left is
// tried again, so that under what is returned none does.
func Suggest(text []byte, e *Evidence, o Options, log func() io.Reader) (*Suggestion, error) {
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	withdrawn := map[string]string{}
	for {
		s, err := draft(text, e, o, withdrawn)
		if err != nil {
			return nil, err
		}
		if s.Proof, err = compare(before, s.Text, log()); err != nil {
			return nil, err
		}
		if s.Proof.Worse == 0 {
			return s, nil
		}
		known := len(withdrawn)
		for limit, n := range s.Proof.Limits {
			withdrawn[limit] = fmt.Sprintf("%d of the requests that were answered would get less, such as %s", n, s.Proof.Examples[limit])
		}
		if len(withdrawn) == known { // It is no limit that was drawn, and so nobody knows why.
			return nil, fmt.Errorf("nothing is suggested: it would refuse or shorten what was answered, by %s",
				strings.Join(slices.Sorted(maps.Keys(s.Proof.Limits)), ", "))
		}
	}
}

func compare(before *config.Config, after []byte, log io.Reader) (*policytest.Comparison, error) {
	c, err := config.Parse(after)
	if err != nil {
		return nil, err
	}
	return policytest.Compare(before.Rules, c.Rules, log)
}
