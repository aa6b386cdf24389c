// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy has no code: its tests hold what is deployed to the packages of
// this repository. tools/deploy holds it to those of Kubernetes, Helm and jsonnet.
package deploy
