# A real Kubernetes for the manifests. Included by the Makefile.

# Images of the build's own architecture, without the web UI, beside those of make image.
CLUSTER_BUILD := build/cluster
CLUSTER_VARS := k8s.io/component-base/version
CLUSTER_OPERATOR := github.com/prometheus-operator/prometheus-operator/cmd
CLUSTER_TESTS ?= .

## cluster: Kubernetes and the Prometheus operator, of upstream's code, into bin/cluster/; some 20 minutes of a processor the first time
.PHONY: cluster
cluster:
	@set -e; cd test/cluster; out='$(CURDIR)/$(BIN)/cluster/'; mkdir -p $$out; \
	version=$$(cd kubernetes && go list -m -f '{{.Version}}' k8s.io/kubernetes); \
	go build -o $$out ./pause; \
	(cd kubernetes && go build -o $$out -ldflags "-s -w -X $(CLUSTER_VARS).gitVersion=$$version \
		-X $(CLUSTER_VARS).gitMajor=1 -X $(CLUSTER_VARS).gitMinor=$$(echo $$version | cut -d. -f2)" .); \
	(cd operator && go build -o $$out $(CLUSTER_OPERATOR)/operator $(CLUSTER_OPERATOR)/prometheus-config-reloader $(CLUSTER_OPERATOR)/admission-webhook)

## test-cluster: the manifests and the chart on a real Kubernetes, which is built first; as root, with containerd, on a node, too; CLUSTER_COMPLETE=1 fails where that is missing
.PHONY: test-cluster
CLUSTER_COMPLETE ?=
test-cluster: build stock cluster
	@$(MAKE) image UI=0 PLATFORMS=linux/$$(go env GOARCH) DIST=$(CLUSTER_BUILD)/dist IMAGES=$(CLUSTER_BUILD)/image
	cd test/cluster && go vet . && PROMGUARD_BIN='$(CURDIR)/$(BIN)' PROMGUARD_IMAGES='$(CURDIR)/$(CLUSTER_BUILD)/image' \
		PROMGUARD_CLUSTER_LOGS='$(CURDIR)/$(CLUSTER_BUILD)/logs' PROMGUARD_CLUSTER_COMPLETE='$(CLUSTER_COMPLETE)' \
		go test -count=1 -timeout 90m -v -run '$(CLUSTER_TESTS)' -exec '$(CURDIR)/test/cluster/isolate.sh' .
