#!/usr/bin/env bash
# Copyright The promguard Authors
# SPDX-License-Identifier: Apache-2.0

# build.sh TREE CACHE: builds the web UI from the sources in TREE, a patched Prometheus,
# by upstream's own scripts, and puts the compressed assets and embed.go into the tree,
# for a Go build with the tags netgo,builtinassets. They are kept as CACHE/HASH.tar.gz,
# where HASH is of all that they are made from: while that is there, no npm is needed.
#
# Why this is not upstream's `make assets` in the tree: that wants the right pnpm and
# Node.js on this machine, builds the 2.x UI, which the Go module lacks that the tree is
# made from (module archives leave out folders named vendor, and its plotting library is
# in one), and leaves node_modules, in which ./... finds Go files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
unset CI NODE_ENV NODE_OPTIONS PUBLIC_URL # They change what is built.

fail() {
	echo "webui: error: $1; \`make prometheus\` without UI=1 builds Prometheus without a web UI and needs no Node.js" >&2
	exit 1
}

# sources lists what the assets are made from. Go files only serve them.
sources() (
	cd "$tree"
	find scripts/compress_assets.sh web/ui \
		\( -name node_modules -o -name dist -o -path web/ui/static -o -path web/ui/react-app \) -prune -o \
		-type f ! -name '*.go' -print | LC_ALL=C sort
)

hash() {
	{
		sources
		sources | (cd "$tree" && git hash-object --no-filters --stdin-paths)
		git hash-object --no-filters "$here"/{build.sh,oldui.html,toolchain/package-lock.json}
	} | git hash-object --stdin
}

# build makes the assets in a copy of the sources.
build() (
	for program in node npm gzip; do
		command -v $program >/dev/null || fail "$program is not in PATH, and $assets does not exist: install it (Debian: \`apt install nodejs npm gzip\`)"
	done
	echo "webui: $assets does not exist yet, building the web UI (needs the npm registry)" >&2
	work=$(mktemp -d "$cache/work-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'fail "the web UI was not built"' ERR
	sources | tar -C "$tree" -cf - -T - | tar -C "$work" -xf -
	cp "$here"/toolchain/package*.json "$work"
	cd "$work"
	npm ci --ignore-scripts --no-audit --no-fund
	PATH=$work/node_modules/.bin:$PATH
	cd web/ui
	pnpm install --frozen-lockfile --reporter=append-only
	bash build_ui.sh --mantine-ui
	test -s static/mantine-ui/index.html
	mkdir -p static/react-app
	cp "$here/oldui.html" static/react-app/index.html
	cd "$work"
	bash scripts/compress_assets.sh
	find web/ui/static -type f ! -name '*.gz' -delete
	tar -C web/ui -czf assets static embed.go
	mv assets "$assets"
) >&2

test $# = 2 || { echo "usage: build.sh TREE CACHE" >&2; exit 1; }
test -f "$1/web/ui/embed.go.tmpl" || fail "$1 is not a Prometheus source tree"
mkdir -p "$2"
# Node.js resolves packages by real paths.
tree=$(cd "$1" && pwd -P) cache=$(cd "$2" && pwd -P) ui=$tree/web/ui
assets=$cache/$(hash).tar.gz
if ! test -e "$assets"; then
	build
fi
gzip -t "$assets" || fail "$assets is damaged: remove it and run again"
rm -rf "$ui/static" "$ui/embed.go"
tar -C "$ui" -xzf "$assets" static
tar -C "$ui" -xzf "$assets" embed.go # Last, so that half of the assets do not build.
echo "webui: $assets is in $ui" >&2
