// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/promguard/promguard/internal/image"
)

// pushLayout copies what build wrote to a registry: the image under its tag,
// and the documents about it, which registries list by the image's digest.
func pushLayout(ctx context.Context, dir, to string, insecure bool) error {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	ref, err := name.NewTag(to, options...)
	if err != nil {
		return err
	}
	_, index, referrers, err := image.ReadLayout(dir)
	if err != nil {
		return err
	}
	remotes := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(ref, index, remotes...); err != nil {
		return err
	}
	for _, r := range referrers {
		digest, err := r.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(ref.Context().Digest(digest.String()), r, remotes...); err != nil {
			return fmt.Errorf("a document about the image: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref, digest)
	return nil
}
