module github.com/promguard/promguard/tools/image/readers

go 1.26.0

require (
	github.com/google/go-containerregistry v0.22.1
	github.com/in-toto/attestation v1.2.0
	github.com/opencontainers/image-spec v1.1.1
	github.com/spdx/tools-golang v0.5.7
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.11
	oras.land/oras-go/v2 v2.6.4
)

require (
	github.com/anchore/go-struct-converter v0.1.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
