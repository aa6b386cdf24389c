#!/bin/sh
# Runs a command, for root with PIDs, mounts and a network of its own: what the
# command starts, mounts and routes ends with it, however it ends. Its control groups
# and files are removed here. For go test -exec.
set -eu
test "$(id -u)" = 0 || exec "$@"
for program in unshare setpriv mount ip; do
	command -v $program >/dev/null || { echo "isolate.sh: $program is missing (Debian: apt-get install util-linux mount iproute2)" >&2; exit 1; }
done
PROMGUARD_CLUSTER_ISOLATED=$(mktemp -d "${TMPDIR:-/tmp}/promguard-cluster-XXXXXX")
export PROMGUARD_CLUSTER_ISOLATED
clean() {
	group=${PROMGUARD_CLUSTER_ISOLATED##*/}
	rm -rf "$PROMGUARD_CLUSTER_ISOLATED"
	find /sys/fs/cgroup -depth -type d \( -name "$group" -o -path "*/$group/*" \) -exec rmdir {} +
}
trap clean EXIT
# Not ended by Ctrl-C before what is left has been removed.
trap : INT
# The kernel's tunables are those of the whole machine: only those of the network,
# which are this namespace's own, can be changed. A kubelet is shown the others as it
# wants them.
setpriv --pdeathsig KILL unshare --mount --pid --net --fork --kill-child --mount-proc sh -euc '
	mkdir -p "$0/var/log" "$0/run"
	mount --bind "$0/var" /var
	mount --bind "$0/run" /run
	ln -s /run /var/run
	mount --bind /proc/sys /proc/sys
	mount --bind /proc/sys/net /proc/sys/net
	for tunable in kernel/keys/root_maxbytes=25000000 kernel/keys/root_maxkeys=1000000 \
		kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1 vm/panic_on_oom=0; do
		shown=$0/$(basename "${tunable%=*}")
		echo "${tunable#*=}" >"$shown"
		mount --bind "$shown" "/proc/sys/${tunable%=*}"
	done
	mount -o remount,bind,ro /proc/sys
	ip link set lo up
	# The bridge of the pods has the address of the node. By the default route go the
	# addresses of Services, which become those of pods on the way.
	ip link add cni0 type bridge
	ip address add 10.244.0.1/24 dev cni0
	ip link set cni0 up
	ip route add default dev cni0
	exec "$@"
' "$PROMGUARD_CLUSTER_ISOLATED" "$@"
