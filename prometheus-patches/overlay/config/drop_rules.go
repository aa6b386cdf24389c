// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package config

// DropRules are the default drop rules that hold for a scrape config's targets
// unless they say otherwise. They come from a flag, not from the configuration;
// the scrape manager adds them, so that a pool whose rules have changed begins
// its scrapes anew, as it does when its own relabelling has.
type DropRules struct {
	// Profile is the rules' name, empty without rules.
	Profile string
	// Generation grows when the rules of that name change.
	Generation int
}
