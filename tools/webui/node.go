// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// without is how a user gets on when the web UI cannot be built.
const without = "`make prometheus` without UI=1 builds Prometheus without a web UI and needs no Node.js"

// nodeRange is what the build's strictest packages (vite, rolldown) ask for in
// their engines field; nodeSuffices checks it.
const nodeRange = "^20.19.0 || >=22.12.0"

// node is the JavaScript toolchain found on this machine.
type node struct {
	version string
	// tooOld is set where version is outside nodeRange, so that a newer one
	// has to be installed for the build.
	tooOld bool
}

// findNode looks for the programs a build needs in PATH and names the first one
// that is missing, what to install, and how to do without.
func findNode(cache string) (node, error) {
	for _, need := range []struct{ program, pkg string }{
		{"node", "Node.js " + nodeRange + " (Debian: `apt install nodejs npm`)"},
		{"npm", "npm, which comes with Node.js (Debian: `apt install npm`)"},
		{"bash", "bash, which upstream's build scripts are written for"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			return node{}, fmt.Errorf("%s is not in PATH, and no cached assets are in %s: install %s; %s",
				need.program, cache, need.pkg, without)
		}
	}
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return node{}, fmt.Errorf("node --version: %w", err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	enough, err := nodeSuffices(version)
	if err != nil {
		return node{}, err
	}
	return node{version: version, tooOld: !enough}, nil
}

// nodeSuffices says whether version, as in 20.19.0, is in nodeRange.
func nodeSuffices(version string) (bool, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return false, fmt.Errorf("node --version says %q, which is no version", version)
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if err := errors.Join(errMajor, errMinor); err != nil {
		return false, fmt.Errorf("node --version says %q, which is no version: %w", version, err)
	}
	return major == 20 && minor >= 19 || major == 22 && minor >= 12 || major > 22, nil
}
