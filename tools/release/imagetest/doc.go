// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package imagetest reads and starts what make image built, as a container runtime
// would. It needs PROMGUARD_IMAGES, the directory of the images, and PROMGUARD_DIST,
// that of the binaries, which make test-image sets.
package imagetest
