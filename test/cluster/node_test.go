// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	nodeName      = "node"
	runtimeSocket = "/run/containerd/containerd.sock"
	// cniPlugins is where Debian and its kin have them.
	cniPlugins = "/usr/lib/cni"
)

// StartNode adds a node with containerd, a network for pods, Services and DNS, and
// all images that the manifests name. It skips the test where that cannot be.
func (c *Cluster) StartNode(t testing.TB) {
	t.Helper()
	if isolation() == "" {
		lacks(t, "a node needs root")
	}
	for _, program := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "iptables", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks(t, "a node needs %s; of Debian: apt-get install containerd runc containernetworking-plugins iptables iproute2", program)
		}
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "bridge")); err != nil {
		lacks(t, "a node needs the plugins of the package containernetworking-plugins: %v", err)
	}
	c.startContainerd(t)
	c.loadImages(t)
	c.startDNS(t)
	c.part(t, "kube-proxy", "--kubeconfig="+c.kubeconfig(t, "system:kube-proxy"), "--hostname-override="+nodeName,
		"--proxy-mode=iptables", "--cluster-cidr="+podNetwork,
		// Answers come back over the node, for pods on one bridge would send them directly.
		"--masquerade-all", "--conntrack-max-per-core=0")
	c.startKubelet(t)
}

func (c *Cluster) startContainerd(t testing.TB) {
	t.Helper()
	conf := filepath.Join(c.dir, "containerd")
	require.NoError(t, os.MkdirAll(filepath.Join(conf, "net.d"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(conf, "net.d", "10-pods.conflist"), []byte(podNetworkConfig), 0o644))
	config := filepath.Join(conf, "config.toml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, pauseImage, cniPlugins, filepath.Join(conf, "net.d")), 0o644))
	p := start(t, c.Logs, "containerd", "containerd", nil, "--config="+config)
	p.await(t, time.Minute, func() error {
		out, err := exec.Command("ctr", "--connect-timeout=1s", "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// podNetworkConfig puts every pod on the bridge of the node.
const podNetworkConfig = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {
      "type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
      "ranges": [[{"subnet": "` + podNetwork + `", "rangeStart": "10.244.0.10", "gateway": "` + nodeAddress + `"}]]
    }
  }]
}`

// startDNS has the cluster's names answered at the node's address.
func (c *Cluster) startDNS(t testing.TB) {
	t.Helper()
	corefile := filepath.Join(c.dir, "Corefile")
	require.NoError(t, os.WriteFile(corefile, fmt.Appendf(nil, `.:53 {
  errors
  kubernetes cluster.local {
    kubeconfig %s
  }
}
`, c.kubeconfig(t, "coredns")), 0o644))
	c.part(t, "coredns", "-conf="+corefile)
}

func (c *Cluster) startKubelet(t testing.TB) {
	t.Helper()
	group := filepath.Base(isolation())
	hierarchies := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil { // Version 1.
		hierarchies, err = filepath.Glob("/sys/fs/cgroup/*")
		require.NoError(t, err)
	}
	for _, dir := range hierarchies {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, group), 0o755))
	}
	resolv := filepath.Join(c.dir, "resolv.conf")
	require.NoError(t, os.WriteFile(resolv, []byte("nameserver "+nodeAddress+"\n"), 0o644))
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": nodeAddress, "clusterDNS": []string{nodeAddress}, "clusterDomain": "cluster.local", "resolvConf": resolv,
		"containerRuntimeEndpoint": "unix://" + runtimeSocket,
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + group, "failCgroupV1": false,
		"failSwapOn": false,
		// A disk that is nearly full is not this test's business.
		"evictionHard":                map[string]string{"memory.available": "100Mi"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
	})
	require.NoError(t, err)
	file := filepath.Join(c.dir, "kubelet.yaml")
	require.NoError(t, os.WriteFile(file, config, 0o644))
	p := c.part(t, "kubelet", "--config="+file, "--kubeconfig="+c.kubeconfig(t, "system:node:"+nodeName),
		"--hostname-override="+nodeName, "--node-ip="+nodeAddress, "--root-dir=/var/lib/kubelet")
	node := object("v1", "Node", "", nodeName)
	p.await(t, 2*time.Minute, func() error {
		o, err := c.Get(t.Context(), node)
		if err != nil {
			return err
		}
		return condition(o, "Ready")
	})
}

// processes are the PIDs of all programs whose command line begins so, in this
// process's own namespace.
func processes(t testing.TB, commandLine string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var pids []int
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(text), commandLine+"\x00") {
			continue // One that has ended meanwhile.
		}
		var pid int
		_, err = fmt.Sscanf(f, "/proc/%d/cmdline", &pid)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}
