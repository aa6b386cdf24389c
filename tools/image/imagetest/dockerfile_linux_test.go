// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package imagetest

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/image"
)

// It compiles everything in a container, and so make test-dockerfile alone asks
// for it, with the image that holds Go.
func TestTheDockerfileGivesTheFilesAndTheConfigurationOfTheImages(t *testing.T) {
	goImage := os.Getenv("PROMGUARD_GO_IMAGE")
	if goImage == "" {
		t.Skip("PROMGUARD_GO_IMAGE is not set: make test-dockerfile sets it")
	}
	_, err := exec.LookPath("buildah")
	require.NoError(t, err, "install buildah")
	require.Zero(t, os.Geteuid(), "buildah keeps owners of files only as root")
	store := t.TempDir()
	for _, product := range products {
		t.Run(product, func(t *testing.T) {
			want, err := image.ForPlatform(index(t, product), native)
			require.NoError(t, err)
			got := buildDockerfile(t, store, goImage, product)
			require.Equal(t, contents(t, want), contents(t, got))
			require.Equal(t, configuration(t, want), configuration(t, got))
		})
	}
}

// buildDockerfile returns one of the Dockerfile's targets. What it compiles goes
// into this machine's caches of the Go command.
func buildDockerfile(t *testing.T, store, goImage, target string) v1.Image {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	storage := []string{"--root=" + filepath.Join(store, "root"), "--runroot=" + filepath.Join(store, "run")}
	buildah := func(args ...string) {
		cmd := exec.Command("buildah", append(storage, args...)...)
		cmd.Dir = "../../.."
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	args := []string{
		"build", "--isolation=chroot", "--layers",
		"--file=deploy/image/Dockerfile", "--ignorefile=deploy/image/Dockerfile.dockerignore", "--target=" + target,
		"--build-arg=GO_IMAGE=" + goImage, "--build-arg=UI=" + os.Getenv("PROMGUARD_IMAGES_UI"), "--build-arg=GOPROXY=" + goEnv(t, "GOPROXY"),
		"--volume=" + goEnv(t, "GOCACHE") + ":/root/.cache/go-build", "--volume=" + goEnv(t, "GOMODCACHE") + ":/go/pkg/mod",
	}
	buildah(append(args, "--tag=localhost/"+target+":test", ".")...)
	buildah("push", "localhost/"+target+":test", "docker-archive:"+archive)
	img, err := tarball.ImageFromPath(archive, nil)
	require.NoError(t, err)
	return img
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// contents says of each file in an image what it is, whose, and what is in it.
func contents(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	extracted := mutate.Extract(img)
	defer extracted.Close()
	for archive := tar.NewReader(extracted); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, archive)
		require.NoError(t, err)
		files[strings.Trim(h.Name, "/")] = fmt.Sprintf("%c %o %d:%d %s %x", h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid, h.Linkname, sum.Sum(nil))
	}
}

// configuration is an image's, without what only the one who builds can know.
func configuration(t *testing.T, img v1.Image) v1.Config {
	t.Helper()
	file, err := img.ConfigFile()
	require.NoError(t, err)
	config := *file.Config.DeepCopy()
	for _, perBuild := range []string{
		"org.opencontainers.image.version", "org.opencontainers.image.revision", "org.opencontainers.image.created", "io.buildah.version",
	} {
		delete(config.Labels, perBuild)
	}
	return config
}
