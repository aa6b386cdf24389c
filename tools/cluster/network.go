// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"
	"os/exec"
	"strings"
)

// bridge connects the pods and has the node's address.
const bridge = "cni0"

// makeBridge makes the bridge of this network namespace; there may be one.
func makeBridge() error {
	if exec.Command("ip", "link", "show", bridge).Run() == nil {
		return nil
	}
	for _, args := range []string{
		"link add " + bridge + " type bridge",
		"address add " + nodeAddress + "/24 dev " + bridge,
		"link set " + bridge + " up",
		// For the addresses of Services, which become pods' on the way.
		"route add default dev " + bridge,
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}
