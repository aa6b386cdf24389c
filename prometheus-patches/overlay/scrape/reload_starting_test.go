// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/discovery/targetgroup"
)

func TestTargetsThatAreFoundWhileStartingDoNotWaitForTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, cleanup := setupSynctestManager(t, &Options{DiscoveryReloadWhileStarting: true})
		defer cleanup()
		defer m.Stop()
		require.NoError(t, m.ApplyConfig(loadConfiguration(t, "scrape_configs: [{job_name: fast}, {job_name: slow}, {job_name: late}]")))
		found := make(chan map[string][]*targetgroup.Group)
		go m.Run(found)
		all := map[string][]*targetgroup.Group{}
		pools := func() []string {
			synctest.Wait()
			var scraped []string
			for pool, targets := range m.TargetsActive() {
				if len(targets) > 0 {
					scraped = append(scraped, pool)
				}
			}
			slices.Sort(scraped)
			return scraped
		}
		find := func(job string) {
			all[job] = []*targetgroup.Group{{Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(job + ".test")}}}}
			found <- maps.Clone(all)
		}

		find("fast")
		require.Equal(t, []string{"fast"}, pools())
		time.Sleep(4 * time.Second)
		find("slow")
		require.Equal(t, []string{"fast", "slow"}, pools())

		// After the first interval updates are throttled as ever.
		time.Sleep(2 * time.Second)
		find("late")
		require.Equal(t, []string{"fast", "slow"}, pools())
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"fast", "late", "slow"}, pools())
	})
}
