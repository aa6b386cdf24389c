// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server is what the kubelet says of the container prometheus of a replica.
func (c *Cluster) server(t *testing.T, replica int) (corev1.Pod, corev1.ContainerStatus) {
	t.Helper()
	pod := c.pods(t, "prometheus")[fmt.Sprint("prometheus-k8s-", replica)]
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == "prometheus" {
			return pod, s
		}
	}
	return pod, corev1.ContainerStatus{}
}

// killed ends both servers as a machine without memory would.
func (c *Cluster) killed(t *testing.T) {
	now := time.Now()
	awaitSeries(t, c.proxyURL(t), "count(up)", 1)
	servers := processes(t, "/bin/prometheus")
	require.Len(t, servers, 2)
	for _, pid := range servers {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	for replica := range servers {
		WaitFor(t, "the kubelet starts it again", func() error {
			if _, s := c.server(t, replica); s.RestartCount != 1 || !s.Ready {
				return fmt.Errorf("%d restarts, ready: %v", s.RestartCount, s.Ready)
			}
			return nil
		})
		pod, _ := c.server(t, replica)
		requireSeries(t, pod, now)
	}
	c.awaitPrometheus(t)
}

// requireSeries fails unless a server knows what was up then.
func requireSeries(t *testing.T, pod corev1.Pod, then time.Time) {
	t.Helper()
	got, err := series("http://"+pod.Status.PodIP+":9090", "count(up)", then)
	require.NoError(t, err)
	require.Equal(t, 1, got, "what %s scraped before %s is lost", pod.Name, then)
}

// upstreams is the Prometheus object without the component patched-prometheus.
const upstreams = `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: k8s, namespace: monitoring}
spec: {image: ` + stockImage + `, version: 3.16.0, additionalArgs: null, containers: null}
`

const stockImage = "quay.io/prometheus/prometheus:v3.16.0"

// thereAndBack takes the component out and puts it in again.
func (c *Cluster) thereAndBack(t *testing.T) {
	c.importBinary(t, stockImage, "stock/prometheus")
	run := func(d deployment, stock bool, knows ...time.Time) {
		c.Apply(t, d.objects(t))
		c.awaitPrometheus(t)
		for replica := range 2 {
			pod, _ := c.server(t, replica)
			require.Equal(t, stock, container(t, pod.Spec.Containers, "prometheus").Image == stockImage)
			for _, then := range knows {
				requireSeries(t, pod, then)
			}
		}
		awaitSeries(t, c.proxyURL(t), "count(up)", 1)
	}
	awaitSeries(t, c.proxyURL(t), "count(up)", 1)
	before := time.Now()
	run(deployment{patches: []string{upstreams}}, true, before)
	between := time.Now()
	run(deployment{}, false, before, between)
}

// slow leaves a server so little of a processor that the replay of longLog takes
// minutes, and has the operator wait for a start as short as it can. The list takes
// the place of the component's, and with it of its probes, unless it is merged.
const slow = `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: k8s, namespace: monitoring}
spec:
  replicas: 1
  maximumStartupDurationSeconds: 60 # operatorsPatience
  containers: %s
    - name: prometheus
      resources: {requests: {cpu: 10m}, limits: {cpu: 20m}}
`

// operatorsPatience is how long the operator's probe waits for a start, at most: it asks
// once in that time, and the first answer counts.
const operatorsPatience = time.Minute

// merged is what kustomize reads behind the name of a list.
const merged = `# {"x-kubernetes-patch-strategy":"merge","x-kubernetes-patch-merge-key":"name"}`

// replayed is how long a machine may take for what has no other end, at most.
const replayed = 15 * time.Minute

// longReplays has every way of probing watch the replay of one long log.
func (c *Cluster) longReplays(t *testing.T) {
	t.Run("is killed by the operator's startup probe", func(t *testing.T) {
		c.withLongLog(t, deployment{patches: []string{fmt.Sprintf(slow, "")}})
		// One of two comes, however slow the machine is. The end itself may take the
		// pod's whole grace period, so what the kubelet says of its beginning is enough.
		WaitUpTo(t, replayed, "the end by the probe", func() error {
			_, s := c.server(t, 0)
			require.False(t, s.Ready, "the replay ended before the probe's time: the limit of the container's processor is not in force")
			events, err := c.Typed.CoreV1().Events(monitoring).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Killing"})
			if err != nil {
				return err
			}
			for _, e := range events.Items {
				if strings.Contains(e.Message, "Container prometheus failed startup probe, will be restarted") {
					return nil
				}
			}
			return fmt.Errorf("not ended; %v", c.state(t))
		})
	})
	t.Run("is let be by the one of the component", func(t *testing.T) {
		c.withLongLog(t, deployment{patches: []string{fmt.Sprintf(slow, merged)}})
		WaitUpTo(t, replayed, "it is started", func() error {
			pod, s := c.server(t, 0)
			require.Zero(t, s.RestartCount, "the replay was cut off: %v", c.state(t))
			if s.Started == nil || !*s.Started {
				return fmt.Errorf("not started; %v", c.state(t))
			}
			require.False(t, s.Ready, "it takes readers while it replays")
			require.Error(t, answersReady(pod))
			return nil
		})
		c.awaitReplayed(t)
	})
	t.Run("is let be by the probe by progress", func(t *testing.T) {
		c.withLongLog(t, deployment{components: []string{"replay-probe"}, patches: []string{fmt.Sprintf(slow, merged)}})
		c.awaitReplayed(t)
	})
}

func answersReady(pod corev1.Pod) error {
	_, err := get("http://" + pod.Status.PodIP + ":9090/-/ready")
	return err
}

// awaitReplayed waits until the server is ready, and fails when it was restarted, or when
// the operator's probe would have let it be, too.
func (c *Cluster) awaitReplayed(t *testing.T) {
	t.Helper()
	WaitUpTo(t, replayed, "the end of the replay", func() error {
		_, s := c.server(t, 0)
		require.Zero(t, s.RestartCount, "the replay was cut off: %v", c.state(t))
		if !s.Ready {
			return errors.New("not ready")
		}
		require.Greater(t, time.Since(s.State.Running.StartedAt.Time), operatorsPatience, "the replay was short")
		return nil
	})
}

// withLongLog runs one replica on a log that takes long to replay.
func (c *Cluster) withLongLog(t *testing.T, d deployment) {
	t.Helper()
	c.merge(t, find(t, d.objects(t), "Prometheus"), `{"spec": {"replicas": 0}}`)
	WaitUpTo(t, replayed, "no Prometheus runs", func() error { // Its grace is ten.
		list, err := c.Typed.CoreV1().Pods(monitoring).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=prometheus"})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d pods: %w", len(list.Items), err)
		}
		return nil
	})
	for _, volume := range []string{"0", "1"} { // Either may be the replica's.
		data := filepath.Join("/var/lib/volumes", volume, "prometheus-db")
		copyLog(t, longLog(t, c), data)
	}
	for _, o := range d.objects(t) {
		if o.GetKind() == "Prometheus" {
			c.replace(t, o)
		}
	}
}

// longEnough is the time of a processor that the replay has to take: with slow's share
// two minutes or more, twice what the operator's probe allows.
const longEnough = 2500 * time.Millisecond

// longLog writes a log, once, that takes so long to replay on this machine.
func longLog(t *testing.T, c *Cluster) string {
	t.Helper()
	dir := filepath.Join(c.dir, "long-log")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	for scrapes := 200; ; {
		require.NoError(t, os.RemoveAll(dir))
		out, err := exec.Command(c.Binary(t, "walreplay"), "generate", "--series=100000", fmt.Sprint("--scrapes=", scrapes), "--out="+dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		took := c.timeOfReplay(t, dir)
		t.Logf("the replay of %d scrapes takes %s of a processor", scrapes, took)
		if took >= longEnough {
			return dir
		}
		scrapes = int(1.1*float64(scrapes)*longEnough.Seconds()/took.Seconds()) + 1
	}
}

// timeOfReplay is how much of a processor a server takes until it is ready.
func (c *Cluster) timeOfReplay(t *testing.T, log string) time.Duration {
	t.Helper()
	dir, address := t.TempDir(), loopback(freePort(t))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "data"), os.DirFS(log)))
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, nil, 0o644))
	p := start(t, c.Logs, "measured", c.Binary(t, "prometheus"), []string{"GOMAXPROCS=1"},
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	p.await(t, replayed, answers(http.DefaultClient, "http://"+address+"/-/ready"))
	p.stop()
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// copyLog makes a data directory what another one is, for the user of the pods.
func copyLog(t *testing.T, from, to string) {
	t.Helper()
	for _, args := range [][]string{{"rm", "-rf", to}, {"cp", "-a", from, to}, {"chown", "-R", "1000:2000", to}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
