// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package imagetest starts what make image built, as a container runtime would.
//
// The tests need PROMGUARD_IMAGES, the directory of the images, which make
// test-image sets.
package imagetest
