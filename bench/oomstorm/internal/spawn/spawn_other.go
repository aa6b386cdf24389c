// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package spawn

import "errors"

func beIdle() error { return errors.ErrUnsupported }

func become(string, []string) error { return errors.ErrUnsupported }
