// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !gcs

package bucket

import (
	"errors"

	"github.com/thanos-io/objstore"
)

func openGCS([]byte) (objstore.Bucket, error) {
	return nil, errors.New("this walreplay was built without GCS; build it with: go build -tags gcs ./bench/walreplay, or use the type S3 with the endpoint storage.googleapis.com and an HMAC key")
}
