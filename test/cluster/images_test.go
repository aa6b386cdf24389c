// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// pauseImage is the container that holds the network of every pod.
const pauseImage = "promguard.test/pause:1"

// imagesDir is where make image has put the images that the manifests name.
func imagesDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PROMGUARD_IMAGES")
	if dir == "" {
		lacks(t, "PROMGUARD_IMAGES is not set: make test-cluster sets it")
	}
	return dir
}

// loadImages gives the node all images that pods need: nothing can be pulled.
func (c *Cluster) loadImages(t testing.TB) {
	t.Helper()
	images := imagesDir(t)
	importArchive(t, filepath.Join(images, "prometheus", "prometheus-linux-"+runtime.GOARCH+".tar"))
	importArchive(t, filepath.Join(images, "promguard", "promguard-linux-"+runtime.GOARCH+".tar"))
	c.importBinary(t, pauseImage, "cluster/pause")
	c.importBinary(t, ReloaderImage, "cluster/prometheus-config-reloader")
}

// importBinary gives the node an image of one program.
func (c *Cluster) importBinary(t testing.TB, reference, binary string) {
	t.Helper()
	ref, err := name.NewTag(reference)
	require.NoError(t, err)
	image, err := imageOf(c.Binary(t, binary))
	require.NoError(t, err)
	archive := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, tarball.WriteToFile(archive, ref, image))
	importArchive(t, archive)
}

func importArchive(t testing.TB, archive string) {
	t.Helper()
	out, err := exec.Command("ctr", "--namespace=k8s.io", "images", "import", archive).CombinedOutput()
	require.NoError(t, err, "%s: %s", archive, out)
}

// imageOf is an image of one program in /bin, which is its entry point.
func imageOf(binary string) (v1.Image, error) {
	text, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	path := "bin/" + filepath.Base(binary)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(text))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = runtime.GOOS, runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + path}, User: "65534"}
	return mutate.ConfigFile(image, config)
}
