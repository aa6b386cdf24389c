// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"log/slog"
	"os"
	"runtime"
)

// dedicatedProcs is the GOMAXPROCS from which on Go's collector marks on a
// processor of its own, a quarter of them. With fewer it takes a share of each,
// in slices of 10 to 20 ms in which that one neither polls the network nor runs
// anything else; when all are in such a slice at once, nobody is answered.
const dedicatedProcs = 4

// raiseProcs raises GOMAXPROCS to what the flag says. By itself it does so only
// if the process may use every processor that the machine has, because more
// threads than a CPU quota allows are throttled together, and never against the
// operator's own GOMAXPROCS.
func raiseProcs(flag limit, logger *slog.Logger) {
	before := runtime.GOMAXPROCS(0)
	wanted := int(flag.n)
	if flag.auto && os.Getenv("GOMAXPROCS") == "" && before == runtime.NumCPU() {
		wanted = dedicatedProcs
	}
	if wanted <= before {
		return
	}
	runtime.GOMAXPROCS(wanted)
	logger.Info("GOMAXPROCS is raised, so that garbage is collected beside the requests and not between them", "gomaxprocs", wanted, "before", before, "limit", flag.String())
}
