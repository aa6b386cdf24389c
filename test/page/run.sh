#!/bin/sh
# Runs the tests of the page in Chromium: of Debian, which is installed if it is absent.
# The pictures of the documentation are made from servers under load.
set -eu
bin=$1 pictures=$2 work=$(mktemp -d)
command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; }
npm install --silent --no-audit --no-fund --prefix "$work" axe-core@4.14.1
cat >"$work/prometheus.yml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
- job_name: prometheus
  static_configs: [{targets: ["127.0.0.1:19590"]}]
- job_name: promguard
  static_configs: [{targets: ["127.0.0.1:19592"]}]
YAML
echo 'identity: {peers: [127.0.0.1/32]}' >"$work/promguard.yml"
"$bin/prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" --web.listen-address=127.0.0.1:19590 \
	--web.enable-lifecycle --guard.memory-limit=1GB 2>"$work/prometheus.log" &
server=$!
"$bin/promguard" serve --upstream.url=http://127.0.0.1:19590 --upstream.wait=2m --config.file="$work/promguard.yml" \
	--web.listen-address=127.0.0.1:19591 --web.telemetry-address=127.0.0.1:19592 2>"$work/promguard.log" &
proxy=$!
trap 'kill $server $proxy; wait; rm -rf "$work"' EXIT
until curl -sf http://127.0.0.1:19590/-/ready >/dev/null && curl -sf http://127.0.0.1:19592/-/ready >/dev/null; do sleep 1; done
sleep 5
end=$(($(date +%s) + 20))
ask() {
	while [ "$(date +%s)" -lt $end ]; do
		curl -sg -o /dev/null -H "X-Grafana-User: $1" -H "X-Dashboard-Uid: $2" -H "X-Dashboard-Title: $3" -H "X-Panel-Title: $4" "$5" --data-urlencode "$6" || true
	done
}
for port in 19590 19591; do
	ask ann k8s-nodes 'Kubernetes / Nodes' 'CPU by pod' http://127.0.0.1:$port/api/v1/query 'query=max_over_time(sum by (handler) (rate(prometheus_http_request_duration_seconds_bucket{job="prometheus"}[5m]))[6h:1s])' &
	ask bob api 'API server' 'Latency' http://127.0.0.1:$port/api/v1/query 'query=avg_over_time(count by (le) ({__name__=~"prometheus_.+",job="prometheus"})[4h:1s])' &
	ask eve explore Explore '' http://127.0.0.1:$port/api/v1/series 'match[]={le!=""}' &
done
cd "$(dirname "$0")"
AXE=$work/node_modules/axe-core/axe.min.js PAGE_PICTURES=$pictures PAGE_SERVER=http://127.0.0.1:19590 PAGE_PROXY=http://127.0.0.1:19592 \
	sh -c 'GOWORK=off go test -count=1 -timeout 10m -v -run OfRealServers . && GOWORK=off PAGE_PICTURES= go test -count=1 -timeout 10m -v .'
