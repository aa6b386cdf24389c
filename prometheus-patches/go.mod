// The Go files below overlay/ are part of the patched tree and compile there.
// This file keeps them out of this repository's own packages.
module github.com/promguard/promguard/prometheus-patches

go 1.26.0
