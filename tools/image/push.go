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

// pushLayout copies what build wrote to a repository of a registry: the image,
// the documents about it, which registries list by the image's digest, and at the
// end the tag, which is that of the layout: whoever finds it finds all of them.
func pushLayout(ctx context.Context, dir, repository string, insecure bool) error {
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	to, err := name.NewRepository(repository, options...)
	if err != nil {
		return err
	}
	tag, index, referrers, err := image.ReadLayout(dir)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	remotes := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(to.Digest(digest.String()), index, remotes...); err != nil {
		return err
	}
	for _, r := range referrers {
		digest, err := r.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(to.Digest(digest.String()), r, remotes...); err != nil {
			return fmt.Errorf("a document about the image: %w", err)
		}
	}
	if err := remote.Tag(to.Tag(tag), index, remotes...); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", to.Tag(tag), digest)
	return nil
}
