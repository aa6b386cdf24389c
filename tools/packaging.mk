# Images, releases and new upstream versions. Included by the Makefile.

# Binaries for other machines, and what is packed from them.
DIST := build/dist
IMAGES := build/image
PLATFORMS ?= linux/amd64 linux/arm64
# Where the images will be kept: the names prometheus and promguard are appended.
IMAGE_REGISTRY ?= ghcr.io/promguard
# OCI layout of an image to lie on; empty is none. See docs/image.md.
IMAGE_BASE ?=
# The time of everything that is packed, in seconds: by default, the commit's.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

ifeq ($(UI),0)
DIST_TAGS := netgo
DIST_UI := echo 'without the web UI: UI=0'
else
DIST_TAGS := netgo,builtinassets
DIST_UI := ./tools/webui/build.sh $(TREE) $(UI_CACHE) || { echo 'UI=0 leaves the web UI out' >&2; exit 1; }
endif
VERSION_NOW = $$($(PATCHES) version)
REVISION_NOW = $$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain)" || echo -dirty)

## dist: stripped binaries for PLATFORMS into build/dist/, with the web UI, which needs npm; UI=0 leaves it out
.PHONY: dist
dist: patches-apply
	@$(DIST_UI)
	@set -e; stamp=$$($(PATCHES) ldflags); \
	for platform in $(PLATFORMS); do \
		dir=$(DIST)/$$(echo $$platform | tr / -); \
		$(PATCHES) build --platform $$platform --strip --out $$dir --tags $(DIST_TAGS); \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -o $$dir/ \
			-ldflags "-s -w $$stamp" ./cmd/promguard ./bench/walreplay; \
	done

## image: container images of the patched Prometheus and of promguard into build/image/, without a container daemon; takes UI=0 and PLATFORMS
.PHONY: image
image: dist
	@set -e; version=$(VERSION_NOW); revision=$(REVISION_NOW); \
	for product in prometheus promguard; do \
		source=.; test $$product = promguard || source=$(TREE); \
		go run ./tools/image build $$product --binaries $(DIST) $(PLATFORMS:%=--platform %) --source $$source --out $(IMAGES)/$$product \
			--version $$version --revision $$revision --created $(SOURCE_DATE_EPOCH) --repository $(IMAGE_REGISTRY)/$$product \
			$(if $(IMAGE_BASE),--base '$(IMAGE_BASE)'); \
	done

## image-push: the images of make image to IMAGE_REGISTRY, with the documents about them
.PHONY: image-push
image-push:
	@set -e; for product in prometheus promguard; do \
		go run ./tools/image push $(IMAGES)/$$product/oci $(IMAGE_REGISTRY)/$$product; \
	done

## test-image: the images of make image, started as container runtimes do, other platforms' in qemu, and read by other projects' code
.PHONY: test-image
test-image: image
	PROMGUARD_IMAGES='$(CURDIR)/$(IMAGES)' PROMGUARD_IMAGES_UI=$(UI) go test -count=1 -v -timeout 60m ./tools/image/imagetest
	cd tools/image/readers && PROMGUARD_IMAGES='$(CURDIR)/$(IMAGES)' PROMGUARD_DIST='$(CURDIR)/$(DIST)' go test -count=1 -v .

## test-dockerfile: build deploy/image/Dockerfile with buildah, on GO_IMAGE, and compare files and configuration with those of make image
.PHONY: test-dockerfile
GO_IMAGE ?= docker.io/library/golang:1.27
test-dockerfile: image
	PROMGUARD_IMAGES='$(CURDIR)/$(IMAGES)' PROMGUARD_IMAGES_UI='$(or $(UI),1)' PROMGUARD_GO_IMAGE='$(GO_IMAGE)' \
		go test -count=1 -v -timeout 60m -run TestTheDockerfile ./tools/image/imagetest

## bump: take the patches to another upstream version, UPSTREAM=v0.316.0, or go on after conflicts; BUMP_ARGS=--check writes nothing
.PHONY: bump
BUMP_ARGS ?=
bump:
	@test -n '$(UPSTREAM)' || { echo 'make bump UPSTREAM=v0.316.0: name the version of the Go module' >&2; exit 1; }
	@go run ./tools/patches --tree build/bump bump $(BUMP_ARGS) $(UPSTREAM)

## release: archives, images, SBOMs and checksums of a release into build/release/; DRY_RUN=0 demands the tag and the changelog's section; publishes nothing
.PHONY: release release-check release-notes
DRY_RUN ?= 1
release: release-check image
	@set -e; version=$(VERSION_NOW); \
	go run ./tools/release --version $$version pack --dist $(DIST) --images $(IMAGES) --tree $(TREE) $(PLATFORMS:%=--platform %) \
		--created $(SOURCE_DATE_EPOCH) --out build/release/$$(go run ./tools/release --version $$version tag)
release-check:
	@version=$(VERSION_NOW) && go run ./tools/release --version $$version check $(if $(filter 0,$(DRY_RUN)),,--dry-run)
## release-push: the images of a release in build/release/, after its checksums were compared, to IMAGE_REGISTRY
.PHONY: release-push
release-push:
	@set -e; tag=$$(go run ./tools/release --version $(VERSION_NOW) tag); \
	rm -rf build/release-push; \
	(cd build/release/$$tag && sha256sum --check --strict --quiet sha256sums.txt); \
	for product in prometheus promguard; do \
		mkdir -p build/release-push/$$product; \
		tar -xf build/release/$$tag/$$product-$${tag#v}.oci.tar -C build/release-push/$$product; \
		go run ./tools/image push build/release-push/$$product $(IMAGE_REGISTRY)/$$product; \
	done
release-notes:
	@version=$(VERSION_NOW) && go run ./tools/release --version $$version notes

# As a program of its own release: it and golangci-lint need different versions of a YAML parser.
.PHONY: lint-workflows
lint: lint-workflows
lint-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
