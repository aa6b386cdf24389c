// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// small is what the tests change in a kustomization: what the pods request, for
// they are all on one machine, and how often is scraped.
const small = `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: k8s, namespace: monitoring}
spec:
  scrapeInterval: 5s
  resources:
    requests: {cpu: 50m, memory: 256Mi}
    limits: {memory: 1Gi}
`

// fast has the monitors scrape as often.
const fast = `
- op: replace
  path: /spec/endpoints/0/interval
  value: 2s
`

// deployment is base with components and a policy, made small.
type deployment struct {
	components []string
	policy     string   // of promguard; empty is the one in the manifests
	patches    []string // of the Prometheus object
}

// objects builds the deployment as somebody would who has to change it: with a
// kustomization on top.
func (d deployment) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, err := filepath.Abs(kustomized)
	require.NoError(t, err)
	root, err = filepath.Rel(dir, root)
	require.NoError(t, err)
	kustomization := map[string]any{"resources": []string{filepath.Join(root, "base")}}
	var components []string
	for _, c := range d.components {
		components = append(components, filepath.Join(root, "components", c))
	}
	kustomization["components"] = components
	patches := []any{map[string]any{"patch": fast, "target": map[string]any{"kind": "ServiceMonitor"}}}
	for _, p := range append([]string{small}, d.patches...) {
		patches = append(patches, map[string]any{"patch": p})
	}
	kustomization["patches"] = patches
	if d.policy != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "promguard.yml"), []byte(d.policy), 0o644))
		kustomization["configMapGenerator"] = []any{map[string]any{
			"name": "promguard", "namespace": monitoring, "behavior": "replace", "files": []string{"promguard.yml"},
		}}
	}
	text, err := yaml.Marshal(kustomization)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644))
	return build(t, dir)
}

func TestANodeRunsWhatTheManifestsSay(t *testing.T) {
	c := Start(t)
	c.StartNode(t)
	c.StartOperator(t)
	c.makeNamespace(t)
	c.makeVolumes(t, 2)
	c.Apply(t, deployment{}.objects(t))

	t.Run("base rolls out", func(t *testing.T) {
		c.awaitPrometheus(t)
		c.awaitProxy(t)
	})
	t.Run("a query through promguard's Service has what Prometheus scraped", func(t *testing.T) {
		for _, job := range []string{"prometheus-k8s", "promguard"} {
			awaitSeries(t, c.proxyURL(t), fmt.Sprintf("up{job=%q, endpoint=~\"web|telemetry\"} == 1", job), 2)
		}
	})
	t.Run("a drained pod of promguard answers what it is asked", c.drainedProxy)
	t.Run("a policy rolls the pods, and one with a mistake does not", c.policies)
	t.Run("a killed Prometheus replays and has what it had", c.killed)
	t.Run("to upstream's build and back on the same volumes", c.thereAndBack)
	t.Run("a replay that takes long", c.longReplays)
}

// makeVolumes makes directories of the node claimable, as an administrator would
// without a provisioner.
func (c *Cluster) makeVolumes(t *testing.T, count int) {
	t.Helper()
	for i := range count {
		dir := filepath.Join("/var/lib/volumes", strconv.Itoa(i))
		require.NoError(t, os.MkdirAll(dir, 0o770))
		c.Apply(t, []*unstructured.Unstructured{untyped(t, &corev1.PersistentVolume{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("volume-", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
				}}}},
			},
		})})
	}
}

// awaitPrometheus waits until the operator says that all replicas are ready and as
// the object asks.
func (c *Cluster) awaitPrometheus(t *testing.T) {
	t.Helper()
	WaitUpTo(t, 5*time.Minute, "all of Prometheus is available", func() error {
		o, err := c.Get(t.Context(), prometheus())
		if err != nil {
			return err
		}
		set, err := c.statefulSet(t)
		if err != nil {
			return err
		}
		// What follows may still be told of the object as it was before.
		image, _, _ := unstructured.NestedString(o.Object, "spec", "image")
		if made := container(t, set.Spec.Template.Spec.Containers, "prometheus").Image; made != image || set.Status.ObservedGeneration != set.Generation {
			return fmt.Errorf("the StatefulSet has %s, not %s, or is not observed", made, image)
		}
		updated, _, _ := unstructured.NestedInt64(o.Object, "status", "updatedReplicas")
		if want := int64(*set.Spec.Replicas); updated != want || int64(set.Status.ReadyReplicas) != want || set.Status.CurrentRevision != set.Status.UpdateRevision {
			return fmt.Errorf("%d of %d replicas updated, %d ready; %v", updated, want, set.Status.ReadyReplicas, c.state(t))
		}
		return errors.Join(condition(o, "Reconciled"), condition(o, "Available"))
	})
}

// awaitProxy waits until the Deployment is rolled out with the two pods that the
// HorizontalPodAutoscaler asks at least.
func (c *Cluster) awaitProxy(t *testing.T) {
	t.Helper()
	WaitUpTo(t, 5*time.Minute, "promguard is rolled out", func() error {
		d, err := c.Typed.AppsV1().Deployments(monitoring).Get(t.Context(), "promguard", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.ReadyReplicas != 2 || s.UpdatedReplicas != 2 || s.Replicas != 2 {
			return fmt.Errorf("%+v; %v", s, c.state(t))
		}
		return nil
	})
}

// state is a line about every pod, and what was complained of.
func (c *Cluster) state(t *testing.T) []string {
	t.Helper()
	pods, err := c.Typed.CoreV1().Pods(monitoring).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var lines []string
	for _, p := range pods.Items {
		line := fmt.Sprintf("\n%s %s", p.Name, p.Status.Phase)
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			line += fmt.Sprintf(" %s(ready=%v restarts=%d", s.Name, s.Ready, s.RestartCount)
			if s.State.Waiting != nil {
				line += " " + s.State.Waiting.Reason + " " + s.State.Waiting.Message
			}
			line += ")"
		}
		lines = append(lines, line)
	}
	events := c.complaints(t)
	return append(lines, events[max(0, len(events)-8):]...)
}

// proxyURL is promguard's Service.
func (c *Cluster) proxyURL(t *testing.T) string {
	t.Helper()
	s, err := c.Typed.CoreV1().Services(monitoring).Get(t.Context(), "promguard", metav1.GetOptions{})
	require.NoError(t, err)
	return "http://" + s.Spec.ClusterIP + ":9091"
}

// series is how many series the answer to an instant query has.
func series(base, query string, at time.Time) (int, error) {
	client := http.Client{Timeout: time.Minute}
	resp, err := client.PostForm(base+"/api/v1/query", url.Values{"query": {query}, "time": {strconv.FormatInt(at.Unix(), 10)}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var body struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return 0, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", resp.Status, body.Error)
	}
	return len(body.Data.Result), nil
}

// awaitSeries waits until a query is answered with so many series.
func awaitSeries(t *testing.T, base, query string, want int) {
	t.Helper()
	WaitFor(t, fmt.Sprintf("%d series of %s", want, query), func() error {
		got, err := series(base, query, time.Now())
		if err != nil || got != want {
			return fmt.Errorf("%d series: %w", got, err)
		}
		return nil
	})
}

// pods are those of a name that are not on their way out, by name.
func (c *Cluster) pods(t *testing.T, name string) map[string]corev1.Pod {
	t.Helper()
	list, err := c.Typed.CoreV1().Pods(monitoring).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
	require.NoError(t, err)
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods[p.Name] = p
		}
	}
	return pods
}

// drainedProxy evicts a pod of promguard, as kubectl drain does, while it waits for the answer
// to a query, and after it has been told to end.
func (c *Cluster) drainedProxy(t *testing.T) {
	servers := processes(t, "/bin/prometheus")
	require.Len(t, servers, 2)
	var pod corev1.Pod
	for _, pod = range c.pods(t, "promguard") {
		break
	}
	halt := func(s syscall.Signal) {
		for _, pid := range servers {
			require.NoError(t, syscall.Kill(pid, s))
		}
	}
	halt(syscall.SIGSTOP) // The query waits until they go on.
	defer halt(syscall.SIGCONT)
	for _, pid := range servers {
		awaitStopped(t, pid)
	}
	answer := make(chan error, 1)
	go func() {
		got, err := series("http://"+pod.Status.PodIP+":9091", "count(up)", time.Now())
		if err == nil && got != 1 {
			err = fmt.Errorf("%d series", got)
		}
		answer <- err
	}()
	awaitInFlight(t, pod)
	require.NoError(t, c.Typed.PolicyV1().Evictions(monitoring).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: monitoring}}))
	// preStop takes ten seconds: the port of new requests closes after them.
	WaitFor(t, "promguard is told to end", func() error {
		resp, err := http.Get("http://" + pod.Status.PodIP + ":9091/-/healthy")
		if err == nil {
			resp.Body.Close()
			return errors.New("it takes requests")
		}
		return nil
	})
	select {
	case err := <-answer:
		require.FailNow(t, "answered before the server could", "%v", err)
	default:
	}
	halt(syscall.SIGCONT)
	require.NoError(t, <-answer)
	c.awaitProxy(t)
	c.awaitPrometheus(t)
}

// awaitStopped waits until a process has heeded SIGSTOP.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	WaitFor(t, "the process is stopped", func() error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && !strings.Contains(string(status), "State:\tT") {
			err = errors.New(string(status))
		}
		return err
	})
}

// awaitInFlight waits until promguard has passed a request on.
func awaitInFlight(t *testing.T, pod corev1.Pod) {
	t.Helper()
	WaitFor(t, "the query is in flight", func() error {
		text, err := get("http://" + pod.Status.PodIP + ":9092/metrics")
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "promguard_requests_in_flight") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
				return nil
			}
		}
		return errors.New("nothing in flight")
	})
}

// policies changes the policy twice.
func (c *Cluster) policies(t *testing.T) {
	before := c.pods(t, "promguard")
	c.Apply(t, deployment{policy: "admission: {max: 7}\n"}.objects(t))
	c.awaitProxy(t)
	good := c.pods(t, "promguard")
	for name := range good {
		require.NotContains(t, before, name, "a pod has the old policy")
	}
	c.Apply(t, deployment{policy: "admission: {maximum: 7}\n"}.objects(t))
	WaitFor(t, "a pod that does not start", func() error {
		for _, p := range c.pods(t, "promguard") {
			for _, s := range p.Status.ContainerStatuses {
				if end := s.LastTerminationState.Terminated; end != nil && end.ExitCode != 0 {
					return nil
				}
			}
		}
		return fmt.Errorf("all start: %v", c.state(t))
	})
	now := c.pods(t, "promguard")
	for name := range good {
		require.Contains(t, now, name)
		require.True(t, now[name].Status.ContainerStatuses[0].Ready)
	}
	awaitSeries(t, c.proxyURL(t), "count(up)", 1)
	c.Apply(t, deployment{}.objects(t))
	c.awaitProxy(t)
}

// get is the body of an answer with status 200.
func get(url string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}
