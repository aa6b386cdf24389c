#!/bin/sh
# Copyright The promguard Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer for a while, one after the other, and fails when one of them
# finds something: those of this module, and those of the new files of the patched
# Prometheus, which make patches-apply puts into build/prometheus. What was found
# is left in the package's testdata/fuzz, from where go test runs it again.
#
# Usage: tools/fuzz.sh [DURATION [PACKAGE...]]
# DURATION is what go test -fuzztime takes: 30s, 10m, or 1000x for a number of
# executions. It is spent on each fuzzer. With PACKAGE, only those of this module.

set -eu
cd "$(dirname "$0")/.."
tree=build/prometheus

duration=${1:-1m}
[ $# -eq 0 ] || shift
patched=
if [ $# -eq 0 ]; then
	set -- ./...
	[ -d "$tree" ] || { echo "fuzz: no $tree: run make patches-apply" >&2; exit 1; }
	patched=$(cd prometheus-patches/overlay && find . -name '*_test.go' -exec grep -H '^func Fuzz' {} + |
		sed -E 's|/[^/]*:func (Fuzz[A-Za-z0-9_]*).*| \1|')
fi

# One line for each fuzzer: its package and its name. go test -list prints the
# names of a package's fuzzers and after them the package. It runs on its own, as
# sh does not see the failure of a command at the head of a pipe.
listed=$(go test -list '^Fuzz' "$@")
fuzzers=$(printf '%s\n' "$listed" | awk '
	/^Fuzz/ { names[n++] = $1 }
	/^ok/   { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }
')
if [ -z "$fuzzers" ]; then
	echo "fuzz: no fuzzer in $*" >&2
	exit 1
fi

failed=
fuzz() { # DIRECTORY PACKAGE NAME
	echo "fuzz: $2 $3 for $duration"
	(cd "$1" && go test -run '^$' -fuzz "^$3\$" -fuzztime "$duration" "$2" </dev/null) || failed="$failed $3"
}
while read -r package name; do
	fuzz . "$package" "$name"
done <<END
$fuzzers
END
export GOWORK=off
while read -r package name; do
	[ -z "$name" ] || fuzz "$tree" "$package" "$name"
done <<END
$patched
END

if [ -n "$failed" ]; then
	echo "fuzz: failed:$failed" >&2
	exit 1
fi
