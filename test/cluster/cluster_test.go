// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cluster runs a Kubernetes on this machine: etcd, the API server, the
// controllers and the scheduler, the Prometheus operator with its admission, and for
// root, in the namespaces of isolate.sh, a node with containerd. Nothing is simulated
// and nothing is downloaded: the parts are upstream's code, built by make cluster.
package cluster

import (
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
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// nodeAddress is that of the node and of the API server where isolate.sh has made
	// them a network of their own; it is the gateway of the pods.
	nodeAddress = "10.244.0.1"
	podNetwork  = "10.244.0.0/24"
	services    = "10.96.0.0/16"
	// kubernetesService is the first address of services.
	kubernetesService = "10.96.0.1"
)

// groups are those of the users that there are.
var groups = map[string]string{
	"admin": "system:masters", "coredns": "system:masters",
	"system:kube-controller-manager": "", "system:kube-scheduler": "", "system:kube-proxy": "",
	"system:node:" + nodeName: "system:nodes", "prometheus-operator": "",
}

// Cluster is a control plane with the Prometheus operator, and a client of it that
// may do everything.
type Cluster struct {
	Client
	// Logs is the folder with what every part has written.
	Logs string

	dir, bin string
	secret   string // What users' tokens end with.
	ca       []byte // The API server's.
	address  string // of the API server and of the node
	api      string // URL
	operator *process
}

// Start runs a cluster without nodes until the test ends.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{bin: binDir(t), dir: t.TempDir(), address: "127.0.0.1", secret: rand.Text()}
	c.Logs = logsDir(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of the cluster are in %s", c.Logs)
		}
	})
	if isolation() != "" {
		c.address = nodeAddress
	}
	c.startAPIServer(t, c.startEtcd(t))
	c.Client = newClient(t, c.config("admin"))
	c.startControllers(t)
	return c
}

// isolation is the directory of this process's own /var and /run, or empty where it
// runs beside everything else.
func isolation() string { return os.Getenv("PROMGUARD_CLUSTER_ISOLATED") }

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
		lacks(t, "%v: make test-cluster builds it", err)
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
	certFile, keyFile := c.certify(t, "apiserver", net.ParseIP(c.address), net.ParseIP(kubernetesService))
	var err error
	c.ca, err = os.ReadFile(certFile)
	require.NoError(t, err)
	accountsKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(c.accountsKey(), accountsKey, 0o600))
	tokens := ""
	for user, group := range groups {
		tokens += fmt.Sprintf("%s,%s,%s,%s\n", c.token(user), user, user, group)
	}
	tokensFile := filepath.Join(c.dir, "tokens.csv")
	require.NoError(t, os.WriteFile(tokensFile, []byte(tokens), 0o600))

	port := freePort(t)
	c.api = fmt.Sprintf("https://%s:%d", c.address, port)
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=" + c.address, "--advertise-address=" + c.address,
		fmt.Sprintf("--secure-port=%d", port), "--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
		"--token-auth-file=" + tokensFile, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.accountsKey(),
		"--service-account-signing-key-file=" + c.accountsKey(), "--service-cluster-ip-range=" + services,
	}
	if c.address == "127.0.0.1" {
		// No address for the Service kubernetes: there are no pods that could ask it.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	p := c.part(t, "kube-apiserver", args...)
	transport, err := rest.TransportFor(c.config("admin"))
	require.NoError(t, err)
	p.await(t, 2*time.Minute, answers(&http.Client{Transport: transport, Timeout: 5 * time.Second}, c.api+"/readyz"))
}

func (c *Cluster) accountsKey() string { return filepath.Join(c.dir, "accounts.key") }

// token is what a user is known by.
func (c *Cluster) token(user string) string {
	return strings.ReplaceAll(user, ":", "-") + "." + c.secret
}

// certify writes a certificate for this machine, followed by the authority that signed
// it, and its key.
func (c *Cluster) certify(t testing.TB, name string, addresses ...net.IP) (certFile, keyFile string) {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", append(addresses, net.ParseIP("127.0.0.1")), []string{"kubernetes.default.svc"})
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(c.dir, name+".crt"), filepath.Join(c.dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, keyPEM, 0o600))
	return certFile, keyFile
}

func (c *Cluster) startControllers(t testing.TB) {
	t.Helper()
	c.part(t, "kube-controller-manager", "--kubeconfig="+c.kubeconfig(t, "system:kube-controller-manager"),
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
		"--service-account-private-key-file="+c.accountsKey(), "--root-ca-file="+filepath.Join(c.dir, "apiserver.crt"),
		// A node that is gone for good is not waited for.
		"--node-monitor-grace-period=1m")
	c.part(t, "kube-scheduler", "--kubeconfig="+c.kubeconfig(t, "system:kube-scheduler"), "--leader-elect=false", "--secure-port=0")
}

// config is that of a client of the API server.
func (c *Cluster) config(user string) *rest.Config {
	return &rest.Config{
		Host: c.api, QPS: -1, // The server's own fairness is enough.
		BearerToken: c.token(user), TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
	}
}

// kubeconfig writes the file that makes a program this user.
func (c *Cluster) kubeconfig(t testing.TB, user string) string {
	t.Helper()
	require.Contains(t, groups, user)
	file := filepath.Join(c.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.api, CertificateAuthorityData: c.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": {Token: c.token(user)}},
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
