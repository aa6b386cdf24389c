#!/bin/sh
# Runs the tests of the page in Chromium: of Debian, which is installed if it is absent.
# The pictures of the documentation are made from the demo in a storm: a cluster whose
# pods are all replaced every other minute, dashboards and alerts that ask, and a few who
# ask for far too much.
set -eu
bin=$1 pictures=$2 work=$(mktemp -d)
command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; }
storm=$work/storm
touch "$storm"
npm install --silent --no-audit --no-fund --prefix "$work" axe-core@4.14.1
GOMEMLIMIT=${PAGE_MEMORY:-260MiB} "$bin/demo" --bin="$bin" --data="$work/data" --series=50000 --churn=30 --scrape-interval=5s \
	--prometheus.port=19590 --proxy.port=19591 --telemetry.port=19592 --exposition.port=19593 >"$work/demo.log" 2>&1 &
demo=$!
trap 'rm -f "$storm"; kill $demo 2>/dev/null || true; wait; rm -rf "$work"' EXIT
until grep -q 'Ctrl-C stops all' "$work/demo.log"; do
	kill -0 $demo || { cat "$work/demo.log"; exit 1; }
	sleep 1
done

# ask USER DASHBOARD TITLE PANEL ENDPOINT PARAMETER asks again and again until the storm is over.
ask() {
	while [ -e "$storm" ]; do
		curl -sg -o /dev/null --max-time 60 -H "X-Grafana-User: $1" -H "X-Dashboard-Uid: $2" -H "X-Dashboard-Title: $3" -H "X-Panel-Title: $4" \
			"$root/api/v1/$5" --data-urlencode "$6" || true
		sleep 0.2
	done
}
alert() { # RULE QUERY: as Grafana's alerting.
	while [ -e "$storm" ]; do
		curl -sg -o /dev/null --max-time 60 -H 'FromAlert: true' -H "X-Rule-Uid: $1" -H "X-Rule-Name: $1" "$root/api/v1/query" --data-urlencode "query=$2" || true
		sleep 2
	done
}
for root in http://127.0.0.1:19590 http://127.0.0.1:19591; do
	ask ann k8s-nodes 'Kubernetes / Nodes' 'CPU by pod' query 'query=max_over_time(sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[5m]))[6h:1s])' &
	ask bob api-server 'API server' 'Latency by verb' query 'query=quantile_over_time(0.99, histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_duration_seconds_bucket[5m])))[4h:1s])' &
	ask carol workloads 'Workloads' 'Restarts' query 'query=sum_over_time(sum by (namespace) (kube_pod_container_status_restarts_total)[2h:1s])' &
	ask dave '' '' '' query 'query=label_replace(label_join({job=~".+"}, "all", "-", "namespace", "pod", "container"), "x", "$1$1$1", "all", "(.*)")' &
	ask eve '' '' '' series 'match[]={le!=""}' &
	alert KubePodCrashLooping 'max_over_time(kube_pod_container_status_waiting_reason{reason="CrashLoopBackOff"}[5m]) >= 1' &
done
sleep "${PAGE_STORM:-150}"
cd "$(dirname "$0")"
AXE=$work/node_modules/axe-core/axe.min.js
export AXE GOWORK=off
PAGE_PICTURES=$pictures PAGE_SERVER=http://127.0.0.1:19590 PAGE_PROXY=http://127.0.0.1:19592 go test -count=1 -timeout 10m -v -run OfRealServers .
rm "$storm"
kill $demo
wait
go test -count=1 -timeout 10m -v .
