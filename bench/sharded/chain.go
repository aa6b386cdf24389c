// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promguard/promguard/internal/cli"
)

// options are what a chain is made of.
type options struct {
	bin       string // directory of the binaries
	data      string // directory for all that the processes write
	manifests string // deploy/kubernetes
	port      int    // first port, of some thirty that follow; 0 takes free ones

	shards, replicas int
	queries          int // Thanos Query
	series           int
	without          []string      // pools that are not scraped
	interval         time.Duration // between scrapes
	beat             time.Duration // see targets
	block            time.Duration // length of blocks
	serverEnv        []string      // of servers, besides this process's
	serverArgs       []string      // of servers, in place of the same flags of the manifests
}

// pod is a server with its sidecar.
type pod struct{ server, sidecar *part }

// chain is all of docs/sharded.md but the Ruler, on this machine: modelled targets,
// servers of all shards with their sidecars, store gateway, compactor, Query behind what
// a Service is, Query Frontend and promguard.
type chain struct {
	options

	targets                     *targets
	pods                        [][]pod // by shard and replica
	store, compact              *part
	query                       []*part
	service                     *service
	frontend, proxy             *part
	parts                       []*part // all, in the order in which they start
	bucket, objstore, endpoints string  // the bucket's directory, its YAML, and what Query reads
	next                        int     // port
	lock                        fileutil.Releaser
	ended                       func(*part, error)
}

// binaries are what is needed, and the target that builds it.
var binaries = map[string]string{
	"prometheus": "prometheus", "promguard": "promguard", "peers/thanos": "thanos",
}

// newChain checks what a chain needs and plans its processes. ended is told when one ends
// that should not. The caller must call close.
func newChain(o options, ended func(*part, error)) (*chain, error) {
	c := &chain{options: o, next: o.port, ended: ended}
	for name, target := range binaries {
		if info, err := os.Stat(filepath.Join(o.bin, name)); err != nil {
			return nil, fmt.Errorf("%w; make %s builds it, --bin names another directory", err, target)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("%s is not executable; make %s builds it", filepath.Join(o.bin, name), target)
		}
	}
	if err := os.MkdirAll(o.data, 0o777); err != nil {
		return nil, err
	}
	var err error
	if c.lock, _, err = fileutil.Flock(filepath.Join(o.data, "lock")); err != nil {
		return nil, fmt.Errorf("%s is in use (%w); stop what uses it, or name another directory with --data", o.data, err)
	}
	c.bucket, c.objstore, c.endpoints = filepath.Join(o.data, "bucket"), filepath.Join(o.data, "objstore.yml"), filepath.Join(o.data, "endpoints.yml")
	for _, do := range []func() error{
		func() error { return os.MkdirAll(c.bucket, 0o777) },
		func() error {
			return os.WriteFile(c.objstore, fmt.Appendf(nil, "type: FILESYSTEM\nconfig: {directory: %q}\n", c.bucket), 0o666)
		},
		c.serve,
		c.plan,
	} {
		if err := do(); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// serve begins to serve what belongs to this process.
func (c *chain) serve() error {
	address, err := c.address()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if c.targets, err = serveTargets(l, c.series, c.without, c.beat); err != nil {
		_ = l.Close()
		return err
	}
	if address, err = c.address(); err != nil {
		return err
	}
	c.service, err = newService(address)
	return err
}

// address returns the next free address.
func (c *chain) address() (string, error) {
	if c.next == 0 {
		// Below the ports that connections are given, one of which could come between.
		c.next = 10_000 + rand.IntN(20_000)
	}
	for {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.next))
		l, err := net.Listen("tcp", address)
		c.next++
		switch {
		case err == nil:
			return address, l.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return "", cli.Misuse(fmt.Errorf("--port: %w", err))
		case c.port != 0:
			return "", fmt.Errorf("port %d is in use; stop what uses it, or name another first port with --port", c.next-1)
		}
	}
}

// add plans a process that serves HTTP at a new address, which args are given.
func (c *chain) add(name, kind, binary string, args func(address string) ([]string, error)) (*part, error) {
	address, err := c.address()
	if err != nil {
		return nil, err
	}
	p := &part{name: name, kind: kind, path: filepath.Join(c.bin, binary), url: "http://" + address, log: filepath.Join(c.data, name+".log")}
	if p.args, err = args(address); err != nil {
		return nil, err
	}
	c.parts = append(c.parts, p)
	return p, nil
}

// thanos plans a component of Thanos as its manifest has it, and returns where it
// serves gRPC.
func (c *chain) thanos(name, file string, drop []string, others ...string) (p *part, grpc string, err error) {
	component := strings.TrimSuffix(file, ".yaml")
	if component == "sidecar" { // The operator's.
		file = "prometheus.yaml"
	}
	args, err := arguments(filepath.Join(c.manifests, "sharded", file), component)
	if err != nil {
		return nil, "", err
	}
	if component != "compact" && component != "query-frontend" {
		if grpc, err = c.address(); err != nil {
			return nil, "", err
		}
		others = append(others, "--grpc-address="+grpc)
	}
	p, err = c.add(name, component, "peers/thanos", func(address string) ([]string, error) {
		return with(args, drop, append(others, "--http-address="+address)...), nil
	})
	return p, grpc, err
}

// plan plans all processes.
func (c *chain) plan() (err error) {
	var endpoints []string
	for shard := range c.shards {
		var pods []pod
		for replica := range c.replicas {
			name := fmt.Sprintf("prometheus-k8s-shard-%d-%d", shard, replica)
			if shard == 0 { // As the operator names them.
				name = fmt.Sprintf("prometheus-k8s-%d", replica)
			}
			p, grpc, err := c.pod(name, shard, c.shards)
			if err != nil {
				return err
			}
			pods, endpoints = append(pods, p), append(endpoints, grpc)
		}
		c.pods = append(c.pods, pods)
	}
	objstore := "--objstore.config-file=" + c.objstore
	var grpc string
	if c.store, grpc, err = c.thanos("thanos-store-0", "store.yaml", nil, objstore, "--data-dir="+filepath.Join(c.data, "store"),
		"--sync-block-duration="+(c.block/8).String()); err != nil { // Its default, for blocks of two hours.
		return err
	}
	endpoints = append(endpoints, grpc)
	if c.compact, _, err = c.thanos("thanos-compact-0", "compact.yaml", nil, objstore, "--data-dir="+filepath.Join(c.data, "compact")); err != nil {
		return err
	}
	if err := writeEndpoints(c.endpoints, endpoints); err != nil {
		return err
	}
	for i := range c.queries {
		// Each server is named: one that is looked up is missing without a word when it is gone.
		q, _, err := c.thanos(fmt.Sprintf("thanos-query-%d", i), "query.yaml", []string{"--endpoint"}, "--endpoint.sd-config-file="+c.endpoints)
		if err != nil {
			return err
		}
		c.query = append(c.query, q)
		c.service.backends = append(c.service.backends, strings.TrimPrefix(q.url, "http://"))
	}
	if c.frontend, _, err = c.thanos("thanos-query-frontend", "query-frontend.yaml", nil, "--query-frontend.downstream-url=http://"+c.service.address); err != nil {
		return err
	}
	return c.planProxy()
}

// writeEndpoints writes what Query reads: servers that are asked also if they seem gone.
func writeEndpoints(file string, addresses []string) error {
	var b strings.Builder
	fmt.Fprintln(&b, "endpoints:")
	for _, a := range addresses {
		fmt.Fprintf(&b, "- {address: %q, strict: true}\n", a)
	}
	return os.WriteFile(file, []byte(b.String()), 0o666)
}

// pod plans a server of a shard and its sidecar, and returns where that serves gRPC.
func (c *chain) pod(name string, shard, shards int) (p pod, grpc string, err error) {
	if p.server, err = c.server(name, shard, shards); err != nil {
		return pod{}, "", err
	}
	p.sidecar, grpc, err = c.thanos(name+"-sidecar", "sidecar", nil,
		"--prometheus.url="+p.server.url, "--tsdb.path="+filepath.Join(c.data, name), "--objstore.config-file="+c.objstore)
	return p, grpc, err
}

// server plans a server of a shard.
func (c *chain) server(name string, shard, shards int) (*part, error) {
	config := filepath.Join(c.data, name+".yml")
	if err := os.WriteFile(config, []byte(c.targets.prometheusConfig(c.interval, name, shard, shards)), 0o666); err != nil {
		return nil, err
	}
	args, err := arguments(filepath.Join(c.manifests, "sharded", "prometheus.yaml"), "server")
	if err != nil {
		return nil, err
	}
	p, err := c.add(name, "server", "prometheus", func(address string) ([]string, error) {
		return with(args, nil, append([]string{
			"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(c.data, name), "--web.listen-address=" + address,
			"--storage.tsdb.min-block-duration=" + c.block.String(), "--storage.tsdb.max-block-duration=" + c.block.String(),
		}, c.serverArgs...)...), nil
	})
	if err == nil {
		p.env = c.serverEnv
	}
	return p, err
}

// planProxy plans promguard, with the policy that is deployed.
func (c *chain) planProxy() error {
	dir := filepath.Join(c.manifests, "promguard")
	args, err := arguments(filepath.Join(dir, "deployment.yaml"), "promguard")
	if err != nil {
		return err
	}
	listen, err := c.address()
	if err != nil {
		return err
	}
	c.proxy, err = c.add("promguard", "promguard", "promguard", func(telemetry string) ([]string, error) {
		return with(args, nil, "--upstream.url="+c.frontend.url, "--upstream.kind=thanos", "--config.file="+filepath.Join(dir, "promguard.yml"),
			"--web.listen-address="+listen, "--web.telemetry-address="+telemetry), nil
	})
	return err
}

// reads is the root of the API for readers: promguard's.
func (c *chain) reads() string {
	for _, a := range c.proxy.args {
		if address, ok := strings.CutPrefix(a, "--web.listen-address="); ok {
			return "http://" + address
		}
	}
	return ""
}

// start starts all processes and waits until all targets are in the answers.
func (c *chain) start(ctx context.Context) error {
	go c.service.serve()
	for _, p := range c.parts {
		if err := p.start(c.ended); err != nil {
			return err
		}
	}
	for _, p := range c.parts {
		if err := p.ready(ctx); err != nil {
			return err
		}
	}
	return c.up(ctx)
}

// up waits until all targets are in the answers of the whole chain, with no warning.
func (c *chain) up(ctx context.Context) error {
	return until(ctx, func() bool {
		a, err := ask(ctx, c.reads(), instant("count(up == 1)", time.Time{}))
		return err == nil && len(a.missing()) == 0 && a.number() == float64(c.targets.count)
	})
}

// close ends all processes, readers' side first. It may be called more than once.
func (c *chain) close() {
	var wg sync.WaitGroup
	for _, p := range slices.Backward(c.parts) {
		p.stopped.Store(true) // None that follows from another is told.
	}
	for _, p := range slices.Backward(c.parts) {
		wg.Go(p.stop)
	}
	wg.Wait()
	if c.service != nil {
		c.service.close()
	}
	if c.targets != nil {
		_ = c.targets.server.Close()
	}
	if c.lock != nil {
		_ = c.lock.Release()
		c.lock = nil
	}
}

// service passes connections on to backends in turn, as a Service does: not to one that
// accepts none.
type service struct {
	address  string
	backends []string
	listener net.Listener
}

func newService(address string) (*service, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &service{address: address, listener: l}, nil
}

// serve passes connections on until the service is closed. It has all its backends.
func (s *service) serve() {
	for i := 0; ; i++ {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.pass(client, i)
	}
}

func (s *service) pass(client net.Conn, first int) {
	defer client.Close()
	for i := range s.backends {
		backend, err := net.Dial("tcp", s.backends[(first+i)%len(s.backends)])
		if err != nil {
			continue
		}
		go func() {
			defer backend.Close()
			_, _ = io.Copy(backend, client)
		}()
		_, _ = io.Copy(client, backend)
		return
	}
}

func (s *service) close() { _ = s.listener.Close() }
