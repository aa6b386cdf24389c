// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import "net"

// FreeAddress returns an address of this host that nothing listens on, for a process
// that is told where to listen.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
