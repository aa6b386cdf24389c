// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"os"
	"runtime"
)

// dedicatedProcs is the GOMAXPROCS from which on Go's garbage collector marks on
// processors of its own.
const dedicatedProcs = 4

// crowdProcs returns the GOMAXPROCS while reads wait for each other, or 0 if it
// stays as it is. By itself it is raised only if the process may use every
// processor that the machine has, because more threads than a CPU quota allows
// are throttled together, and never against the operator's own GOMAXPROCS.
func crowdProcs(flag limit) int {
	procs := runtime.GOMAXPROCS(0)
	wanted := int(flag.n)
	if flag.auto && os.Getenv("GOMAXPROCS") == "" && procs == runtime.NumCPU() {
		wanted = dedicatedProcs
	}
	if wanted <= procs {
		return 0
	}
	return wanted
}
