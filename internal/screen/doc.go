// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen is the page that says what happens at a server: what runs and who
// asked, what is refused, who adds series, what is in force. The patched Prometheus and
// the proxy serve the same page from the same State.
package screen
