# Images, releases and new upstream versions. Included by the Makefile.

# Binaries for other machines, and what is packed from them.
DIST := build/dist
IMAGES := build/image
RELEASES := build/release
RELEASE_TOOL := go tool -modfile=tools/release.mod
PLATFORMS ?= linux/amd64 linux/arm64
# Where the images will be kept: the names prometheus and promguard are appended.
IMAGE_REGISTRY ?= ghcr.io/promguard
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
TAG_NOW = v$$($(PATCHES) version | tr + -)
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

# What tools/release takes for images and for archives.
PACK_ARGS = --dist $(DIST) --tree $(TREE) $(PLATFORMS:%=--platform %) --created $(SOURCE_DATE_EPOCH)

## image: container images of the patched Prometheus and of promguard into build/image/, without a container daemon; takes UI=0 and PLATFORMS
.PHONY: image
image: dist
	@set -e; version=$(VERSION_NOW); revision=$(REVISION_NOW); \
	go run ./tools/release --version $$version image $(PACK_ARGS) --revision $$revision --registry $(IMAGE_REGISTRY) --out $(IMAGES)

## image-push: the images of make image to IMAGE_REGISTRY
.PHONY: image-push
image-push:
	@set -e; tag=$(TAG_NOW); for product in prometheus promguard; do \
		$(RELEASE_TOOL) crane push $(IMAGES)/$$product/oci $(IMAGE_REGISTRY)/$$product:$$tag; \
	done

## test-image: the images of make image, validated, pushed, and started as container runtimes do, other platforms' in qemu
.PHONY: test-image
test-image: image sbom
	PROMGUARD_IMAGES='$(CURDIR)/$(IMAGES)' PROMGUARD_DIST='$(CURDIR)/$(DIST)' PROMGUARD_IMAGES_UI=$(UI) go test -count=1 -v -timeout 60m ./tools/release/imagetest

## bump: take the patches to another upstream version, UPSTREAM=v0.316.0, or go on after conflicts; BUMP_ARGS=--check writes nothing
.PHONY: bump
BUMP_ARGS ?=
bump:
	@test -n '$(UPSTREAM)' || { echo 'make bump UPSTREAM=v0.316.0: name the version of the Go module' >&2; exit 1; }
	@go run ./tools/patches --tree build/bump bump $(BUMP_ARGS) $(UPSTREAM)

# What each binary was linked from, beside it. Scanners compare versions of the Go
# module with what they know of it, and so Prometheus's is the module's.
.PHONY: sbom
sbom: dist
	@set -e; version=$(VERSION_NOW); module=$$(sed -n 's/^version *//p' prometheus-patches/UPSTREAM)+$${version#*+}; \
	for platform in $(PLATFORMS); do \
		for binary in prometheus=$$module promtool=$$module promguard=v$$version walreplay=v$$version; do \
			file=$(DIST)/$$(echo $$platform | tr / -)/$${binary%=*}; \
			$(RELEASE_TOOL) cyclonedx-gomod bin -json -std -noserial -notimestamp -version $${binary#*=} -output $$file.cdx.json $$file; \
		done; \
	done

## release: archives, images, chart, manifests, SBOMs and checksums of a release into build/release/; DRY_RUN=0 demands the tag and the changelog's section; publishes nothing
.PHONY: release release-check release-notes
DRY_RUN ?= 1
release: release-check image sbom
	@set -e; version=$(VERSION_NOW); out=$(RELEASES)/$(TAG_NOW); \
	go run ./tools/release --version $$version archives $(PACK_ARGS) --images $(IMAGES) --out $$out; \
	cd $$out; LC_ALL=C sha256sum * > ../sums; mv ../sums sha256sums.txt; cat sha256sums.txt
release-check:
	@version=$(VERSION_NOW) && go run ./tools/release --version $$version check $(if $(filter 0,$(DRY_RUN)),,--dry-run)
release-notes:
	@version=$(VERSION_NOW) && go run ./tools/release --version $$version notes

## release-push: the images of a release in build/release/, after its checksums were compared, to IMAGE_REGISTRY
.PHONY: release-push
release-push:
	@set -e; tag=$(TAG_NOW); rm -rf build/release-push; \
	(cd $(RELEASES)/$$tag && sha256sum --check --strict --quiet sha256sums.txt); \
	for product in prometheus promguard; do \
		mkdir -p build/release-push/$$product; \
		tar -xf $(RELEASES)/$$tag/$$product-$${tag#v}.oci.tar -C build/release-push/$$product; \
		$(RELEASE_TOOL) crane push build/release-push/$$product $(IMAGE_REGISTRY)/$$product:$$tag; \
	done

# As a program of its own release: it and golangci-lint need different versions of a YAML parser.
.PHONY: lint-workflows
lint: lint-workflows
lint-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
