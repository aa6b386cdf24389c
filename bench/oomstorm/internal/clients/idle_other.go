// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package clients

import "errors"

func giveWay() error { return errors.ErrUnsupported }
