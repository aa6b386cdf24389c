// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/promguard/promguard/internal/image"
)

// nobody is the user that upstream's image runs as, by the number that it has
// there.
const nobody = 65534

// Accounts, as far as upstream's base image has them too.
const (
	passwd = `root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
`
	group = `root:x:0:
nobody:x:65534:
`
	// Names are looked up in /etc/hosts before DNS.
	nsswitch = "hosts: files dns\n"
)

// baseFiles are what a process needs of a system: accounts, a place for
// temporary files, and the roots that TLS connections are checked against.
func baseFiles() ([]image.File, error) {
	roots, err := certificates()
	if err != nil {
		return nil, err
	}
	return []image.File{
		image.Dir("/tmp", fs.ModeSticky|0o777, 0, 0),
		image.Dir("/home", 0o755, 0, 0),
		image.Text("/etc/passwd", passwd),
		image.Text("/etc/group", group),
		image.Text("/etc/nsswitch.conf", nsswitch),
		image.Text("/etc/ssl/certs/ca-certificates.crt", roots),
	}, nil
}

// rootsModule is where the certificates come from.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// certificates are Mozilla's root certificates, as the pinned module has them.
// Those that are trusted up to a date or for some names only are left out: a
// file of certificates cannot say so.
func certificates() (string, error) {
	var out strings.Builder
	n := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		block := &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}
		if err := pem.Encode(&out, block); err != nil {
			return "", err
		}
		n++
	}
	if n == 0 {
		return "", errors.New("the module of root certificates has none")
	}
	return fmt.Sprintf("# %d root certificates of Mozilla's list\n", n) + out.String(), nil
}
