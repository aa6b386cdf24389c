// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTheOperatorRunsThePatchedPrometheusAsDocumented(t *testing.T) {
	c := Start(t)
	c.StartOperator(t)
	c.makeNamespace(t)
	objects := build(t, kustomized+"base")
	flags := []any{map[string]any{"name": "guard.drop-rules", "value": "minimal"}}
	require.NoError(t, unstructured.SetNestedSlice(find(t, objects, "Prometheus").Object, flags, "spec", "additionalArgs"))
	c.Apply(t, objects)
	c.requireAccepted(t)
	server := container(t, c.mustStatefulSet(t).Spec.Template.Spec.Containers, "prometheus")

	t.Run("image, flags and probes are those of the manifests, once each", func(t *testing.T) {
		want := find(t, objects, "Prometheus")
		image, _, err := unstructured.NestedString(want.Object, "spec", "image")
		require.NoError(t, err)
		require.Equal(t, image, server.Image)
		require.Contains(t, server.Args, "--guard.drop-rules=minimal")
		requireProbe(t, server.StartupProbe, "/-/healthy", "web")
		requireProbe(t, server.LivenessProbe, "/-/healthy", "web")
		requireProbe(t, server.ReadinessProbe, "/-/ready", "web")
		require.EqualValues(t, 12, server.LivenessProbe.FailureThreshold)
		require.Equal(t, "8Gi", server.Resources.Limits.Memory().String())
	})
	t.Run("the configuration starts it with exactly these flags", func(t *testing.T) {
		runAsThePod(t, c, server)
	})
	t.Run("the probe by progress asks a sidecar that starts first", func(t *testing.T) {
		generation := c.mustStatefulSet(t).Generation
		c.Apply(t, compose(t, "base", "components/replay-probe"))
		set := c.awaitStatefulSet(t, generation)
		requireProbe(t, container(t, set.Spec.Template.Spec.Containers, "prometheus").StartupProbe, "/startup", "9094")
		sidecar := container(t, set.Spec.Template.Spec.InitContainers, "startup-probe")
		require.Equal(t, corev1.ContainerRestartPolicyAlways, *sidecar.RestartPolicy)
		require.Equal(t, "init-config-reloader", set.Spec.Template.Spec.InitContainers[0].Name)
	})
	t.Run("a second default scrape class is refused, and what runs is left alone", func(t *testing.T) {
		before := c.mustStatefulSet(t)
		c.refused(t, `{"scrapeClasses": [{"name": "a", "default": true}, {"name": "b", "default": true}]}`,
			"multiple default scrape classes defined")
		require.Equal(t, before.Generation, c.mustStatefulSet(t).Generation)
	})
	t.Run("a command takes the place of its request", func(t *testing.T) {
		set := c.changed(t, `{"containers": [{"name": "prometheus", "startupProbe": {"exec": {"command": ["true"]}}}]}`)
		probe := container(t, set.Spec.Template.Spec.Containers, "prometheus").StartupProbe
		require.Nil(t, probe.HTTPGet)
		require.Equal(t, []string{"true"}, probe.Exec.Command)
	})
	t.Run("the build's own version is refused, and nothing runs any more", func(t *testing.T) {
		c.refused(t, `{"version": "3.16.0+promguard.1"}`, "a valid label must be an empty string or consist of alphanumeric characters")
		WaitFor(t, "the StatefulSet is gone", func() error {
			if _, err := c.statefulSet(t); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	})
	t.Run("its admission refuses a rule that is none", func(t *testing.T) {
		rules := find(t, objects, "PrometheusRule").DeepCopy()
		rules.SetName("broken")
		require.NoError(t, unstructured.SetNestedSlice(rules.Object, []any{map[string]any{
			"name": "broken", "rules": []any{map[string]any{"alert": "Broken", "expr": "up =="}},
		}}, "spec", "groups"))
		_, err := c.TryApply(t.Context(), rules)
		require.ErrorContains(t, err, "rules.monitoring.coreos.com")
	})
}

// mustStatefulSet is statefulSet where there is one.
func (c *Cluster) mustStatefulSet(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set, err := c.statefulSet(t)
	require.NoError(t, err)
	return set
}

// prometheus is the object k8s.
func prometheus() *unstructured.Unstructured {
	return object("monitoring.coreos.com/v1", "Prometheus", monitoring, "k8s")
}

// patched merges into the spec of the Prometheus object, until the test ends.
func (c *Cluster) patched(t *testing.T, spec string) {
	t.Helper()
	before, err := c.Get(t.Context(), prometheus())
	require.NoError(t, err)
	t.Cleanup(func() {
		c.replace(t, before)
		c.requireAccepted(t)
	})
	c.merge(t, prometheus(), `{"spec": `+spec+`}`)
}

// changed returns what the operator makes of the changed object.
func (c *Cluster) changed(t *testing.T, spec string) *appsv1.StatefulSet {
	t.Helper()
	generation := c.mustStatefulSet(t).Generation
	c.patched(t, spec)
	return c.awaitStatefulSet(t, generation)
}

// refused waits until the operator says that it cannot do what the changed object
// asks, with this reason.
func (c *Cluster) refused(t *testing.T, spec, reason string) {
	t.Helper()
	c.patched(t, spec)
	WaitFor(t, "the refusal", func() error {
		o, err := c.Get(t.Context(), prometheus())
		if err != nil {
			return err
		}
		if status, message := conditionOf(o, "Reconciled"); status != "False" || !strings.Contains(message, reason) {
			return fmt.Errorf("%s: %s", status, message)
		}
		return nil
	})
}

// awaitStatefulSet waits until the operator has changed its StatefulSet.
func (c *Cluster) awaitStatefulSet(t *testing.T, since int64) *appsv1.StatefulSet {
	t.Helper()
	var set *appsv1.StatefulSet
	WaitFor(t, "a new StatefulSet", func() (err error) {
		if set, err = c.statefulSet(t); err == nil && set.Generation == since {
			err = fmt.Errorf("still generation %d", since)
		}
		return err
	})
	return set
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	require.GreaterOrEqual(t, i, 0, "no "+kind)
	return objects[i]
}

func container(t *testing.T, list []corev1.Container, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, "no container "+name)
	return list[i]
}

func requireProbe(t *testing.T, p *corev1.Probe, path, port string) {
	t.Helper()
	require.NotNil(t, p)
	require.NotNil(t, p.HTTPGet)
	require.Nil(t, p.Exec)
	require.Equal(t, path, p.HTTPGet.Path)
	require.Equal(t, port, p.HTTPGet.Port.String())
}

// runAsThePod starts the patched Prometheus as its container would be, with the
// files that the operator made, below a directory of this test.
func runAsThePod(t *testing.T, c *Cluster, server corev1.Container) {
	t.Helper()
	root := t.TempDir()
	rooted := strings.NewReplacer("/etc/prometheus", root+"/etc/prometheus", "=/prometheus", "="+root+"/prometheus")
	config := filepath.Join(root, "etc/prometheus/config_out/prometheus.env.yaml")
	c.writeConfig(t, config, rooted)
	c.writeRules(t, filepath.Join(root, "etc/prometheus/rules/prometheus-k8s-rulefiles-0"))

	out, err := exec.Command(c.Binary(t, "promtool"), "check", "config", config).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "rules found", "%s", out)

	address := loopback(freePort(t))
	args := []string{"--web.listen-address=" + address}
	for _, a := range server.Args {
		args = append(args, rooted.Replace(a))
	}
	web := filepath.Join(root, "etc/prometheus/web_config/web-config.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(web), 0o755))
	require.NoError(t, os.WriteFile(web, nil, 0o644))
	p := start(t, c.Logs, "prometheus", c.Binary(t, "prometheus"), nil, args...)
	p.await(t, time.Minute, answers(http.DefaultClient, "http://"+address+"/-/ready"))
	require.NoError(t, answers(http.DefaultClient, "http://"+address+"/api/v1/rules")())
}

// writeConfig writes the configuration that the operator made, as the reloader does.
func (c *Cluster) writeConfig(t *testing.T, file string, rooted *strings.Replacer) {
	t.Helper()
	var text []byte
	WaitFor(t, "promguard is scraped", func() error {
		secret, err := c.Typed.CoreV1().Secrets(monitoring).Get(t.Context(), "prometheus-k8s", metav1.GetOptions{})
		if err != nil {
			return err
		}
		unzip, err := gzip.NewReader(bytes.NewReader(secret.Data["prometheus.yaml.gz"]))
		if err != nil {
			return err
		}
		if text, err = io.ReadAll(unzip); err == nil && !bytes.Contains(text, []byte("serviceMonitor/monitoring/promguard/0")) {
			err = fmt.Errorf("no ServiceMonitor of it in %s", text)
		}
		return err
	})
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(rooted.Replace(string(text)), "$(POD_NAME)", "prometheus-k8s-0")), 0o644))
}

// writeRules writes the rules that the operator made.
func (c *Cluster) writeRules(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	var rules *corev1.ConfigMap
	WaitFor(t, "rules", func() (err error) { // The operator may have made it empty at first.
		rules, err = c.Typed.CoreV1().ConfigMaps(monitoring).Get(t.Context(), filepath.Base(dir), metav1.GetOptions{})
		if err == nil && len(rules.Data) == 0 {
			err = errors.New("the ConfigMap is empty")
		}
		return err
	})
	for name, text := range rules.Data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}
