// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package proc starts processes that end with this one, and reads what they have
// used. It measures on Linux only.
package proc
