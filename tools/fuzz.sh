#!/bin/sh
# Copyright The promguard Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzzer of this module for a while, one after the other, and fails
# when one of them finds something. What was found is left in the package's
# testdata/fuzz, from where go test runs it again.
#
# Usage: tools/fuzz.sh [DURATION [PACKAGE...]]
# DURATION is what go test -fuzztime takes: 30s, 10m, or 1000x for a number of
# executions. It is spent on each fuzzer. PACKAGE defaults to ./...

set -eu
cd "$(dirname "$0")/.."

duration=${1:-1m}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ./...

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
while read -r package name; do
	echo "fuzz: $package $name for $duration"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" "$package" </dev/null || failed="$failed $name"
done <<EOF
$fuzzers
EOF

if [ -n "$failed" ]; then
	echo "fuzz: failed:$failed" >&2
	exit 1
fi
