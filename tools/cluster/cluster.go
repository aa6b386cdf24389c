// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// nodeAddress is that of the node and of the API server where they have a
	// network of their own; it is the gateway of the pods.
	nodeAddress = "10.244.0.1"
	podNetwork  = "10.244.0.0/24"
	services    = "10.96.0.0/16"
	// kubernetesService is the first address of services.
	kubernetesService = "10.96.0.1"
)

// Cluster is a control plane with the Prometheus operator, and a client of it that
// may do everything.
type Cluster struct {
	Client
	// Logs is the folder with what every part has written.
	Logs string

	dir, bin  string
	authority authority
	address   string // of the API server and of the node
	api       string // URL
	operator  *process
}

// Start runs a cluster without nodes until the test ends.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{bin: binDir(t), dir: t.TempDir(), address: "127.0.0.1"}
	c.Logs = logsDir(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of the cluster are in %s", c.Logs)
		}
	})
	var err error
	c.authority, err = newAuthority()
	require.NoError(t, err)
	if isolation() != "" {
		require.NoError(t, makeBridge())
		c.address = nodeAddress
	}
	c.startAPIServer(t, c.startEtcd(t))
	c.Client = newClient(t, c.config(t, "admin", "system:masters"))
	c.startControllers(t)
	return c
}

// logsDir outlives the test, and is emptied by the next.
func logsDir(t testing.TB) string {
	t.Helper()
	root := os.Getenv("PROMGUARD_CLUSTER_LOGS")
	if root == "" {
		root = filepath.Join(os.TempDir(), "promguard-cluster-logs")
	}
	dir := filepath.Join(root, t.Name())
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// part starts a part of Kubernetes.
func (c *Cluster) part(t testing.TB, name string, args ...string) *process {
	t.Helper()
	return start(t, c.Logs, name, c.Binary(t, "cluster/kubernetes"), nil, append([]string{name}, args...)...)
}

// Binary is the path of a program that make has built; without it the test is
// skipped.
func (c *Cluster) Binary(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(c.bin, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: make test-cluster builds it", err)
	}
	return path
}

// startEtcd returns the URL of an empty etcd.
func (c *Cluster) startEtcd(t testing.TB) string {
	t.Helper()
	client, peer := "http://"+loopback(freePort(t)), "http://"+loopback(freePort(t))
	p := c.part(t, "etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	p.await(t, time.Minute, answers(http.DefaultClient, client+"/health"))
	return client
}

func (c *Cluster) startAPIServer(t testing.TB, etcd string) {
	t.Helper()
	cert, key, err := c.authority.server([]string{"localhost", "kubernetes.default.svc"},
		net.ParseIP(c.address), net.ParseIP("127.0.0.1"), net.ParseIP(kubernetesService))
	require.NoError(t, err)
	certFile, keyFile, err := writePair(c.dir, "apiserver", cert, key)
	require.NoError(t, err)
	cert, key, err = c.authority.client("kube-apiserver", "system:masters")
	require.NoError(t, err)
	kubeletCert, kubeletKey, err := writePair(c.dir, "apiserver-kubelet", cert, key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.caFile(), c.authority.pem(), 0o600))
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	pem, err := keyPEM(accounts)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.accountsKey(), pem, 0o600))

	port := freePort(t)
	c.api = fmt.Sprintf("https://%s:%d", c.address, port)
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=" + c.address, "--advertise-address=" + c.address,
		fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
		"--client-ca-file=" + c.caFile(), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + kubeletCert, "--kubelet-client-key=" + kubeletKey,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.accountsKey(),
		"--service-account-signing-key-file=" + c.accountsKey(), "--service-cluster-ip-range=" + services,
	}
	if c.address == "127.0.0.1" {
		// No address for the Service kubernetes: there are no pods that could ask it.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	p := c.part(t, "kube-apiserver", args...)
	transport, err := rest.TransportFor(c.config(t, "admin", "system:masters"))
	require.NoError(t, err)
	p.await(t, 2*time.Minute, answers(&http.Client{Transport: transport, Timeout: 5 * time.Second}, c.api+"/readyz"))
}

func (c *Cluster) caFile() string      { return filepath.Join(c.dir, "ca.crt") }
func (c *Cluster) accountsKey() string { return filepath.Join(c.dir, "accounts.key") }

func (c *Cluster) startControllers(t testing.TB) {
	t.Helper()
	c.part(t, "kube-controller-manager", "--kubeconfig="+c.kubeconfig(t, "system:kube-controller-manager"),
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
		"--service-account-private-key-file="+c.accountsKey(), "--root-ca-file="+c.caFile(),
		// A node that is gone for good is not waited for.
		"--node-monitor-grace-period=1m")
	c.part(t, "kube-scheduler", "--kubeconfig="+c.kubeconfig(t, "system:kube-scheduler"), "--leader-elect=false", "--secure-port=0")
}

// config is that of a client of the API server.
func (c *Cluster) config(t testing.TB, user string, groups ...string) *rest.Config {
	t.Helper()
	cert, key, err := c.authority.client(user, groups...)
	require.NoError(t, err)
	return &rest.Config{
		Host: c.api, QPS: -1, // The server's own fairness is enough.
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem(), CertData: cert, KeyData: key},
	}
}

// kubeconfig writes the file that makes a program this user.
func (c *Cluster) kubeconfig(t testing.TB, user string, groups ...string) string {
	t.Helper()
	config, file := c.config(t, user, groups...), filepath.Join(c.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.api, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, file))
	return file
}

// answers asks a URL and wants status 200.
func answers(client *http.Client, url string) func() error {
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}
