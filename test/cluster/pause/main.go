// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command pause holds the namespaces of a pod: it waits to be told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
