// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package readers reads what make image wrote with other projects' code, which
// the module of this repository need not require: the bill of materials with
// SPDX's, the provenance with in-toto's, the layout and a registry with ORAS's.
//
// The tests need PROMGUARD_IMAGES, the directory of the images, and PROMGUARD_DIST,
// that of the binaries in them, which make test-image sets.
package readers
