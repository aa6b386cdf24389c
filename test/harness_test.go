// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package test drives the built binaries as an operator does: a patched
// Prometheus with data in it, and promguard in front.
//
// The tests need PROMGUARD_BIN, the directory of the binaries, which make
// test-e2e sets.
package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// binary returns the path of one of the built binaries.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		t.Skip("PROMGUARD_BIN is not set: make test-e2e builds the binaries and sets it")
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	require.NoError(t, err, "make build builds it")
	return path
}

// server is a running process that answers HTTP.
type server struct {
	url string
	cmd *exec.Cmd
	out output
	// exited is closed when the process has ended.
	exited chan struct{}
}

// output is the file a process prints into. No pipe lies between, so what the
// process had written when it answered a request is there to be read.
type output struct{ *os.File }

// newOutput returns an empty output that ends with the test.
func newOutput(t *testing.T) output {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return output{f}
}

// String is all that was printed up to now.
func (o output) String() string {
	b, err := os.ReadFile(o.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// port is the last that freeAddress gave. It lies below those that the kernel gives to
// clients and to who listens at any, so that none of them takes it before a process does.
var port atomic.Uint32

// freeAddress returns an address that nothing listens at, another one each time.
func freeAddress(t *testing.T) string {
	t.Helper()
	port.CompareAndSwap(0, 10_000+rand.Uint32N(10_000)) // Another one than a run beside this one.
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port.Add(1)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	}
}

// patience only ends what would never end.
const patience = 10 * time.Minute

// eventually waits for what takes the servers a moment, however busy the machine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 100*time.Millisecond, what)
}

// start runs a binary that serves at address and waits until it is ready. Arguments such
// as GOGC=off are variables of its environment. The test's end stops it with SIGTERM,
// which must be enough.
func start(t *testing.T, address, name string, args ...string) *server {
	t.Helper()
	s := &server{url: "http://" + address, out: newOutput(t), exited: make(chan struct{})}
	s.cmd = exec.Command(binary(t, name))
	s.cmd.Env = os.Environ()
	for _, arg := range args {
		if variable.MatchString(arg) {
			s.cmd.Env = append(s.cmd.Env, arg)
		} else {
			s.cmd.Args = append(s.cmd.Args, arg)
		}
	}
	s.cmd.Stdout, s.cmd.Stderr = s.out.File, s.out.File
	s.cmd.Dir = t.TempDir()
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() { s.stop(t) })
	s.waitReady(t)
	return s
}

var variable = regexp.MustCompile(`^[A-Z]+=`)

func (s *server) waitReady(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		select {
		case <-s.exited:
			t.Fatalf("%s ended before it was ready:\n%s", s.cmd.Path, s.out)
		default:
		}
		if resp, err := http.Get(s.url + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s is not ready after %s:\n%s", s.cmd.Path, patience, s.out)
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		t.Errorf("%s did not stop on SIGTERM:\n%s", s.cmd.Path, s.out)
	}
	if t.Failed() {
		t.Logf("%s printed:\n%s", s.cmd.Path, s.out)
	}
}

// cpu is the processor time that the process has used.
func (s *server) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	require.NoError(t, err)
	// The command's name, in parentheses, may contain spaces.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ is 100 on every platform Go supports.
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// metric returns the sum of a metric's series, from /metrics at the address.
func metric(t *testing.T, url, name string, wanted map[string]string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	require.Contains(t, families, name)
	sum := 0.0
series:
	for _, m := range families[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		for k, v := range wanted {
			if have[k] != v {
				continue series
			}
		}
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}

// answer is a response read to its end.
type answer struct {
	code   int
	header http.Header
	body   string
}

func do(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func get(t *testing.T, url string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	return do(t, req)
}

func post(t *testing.T, url, form string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(form))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return do(t, req)
}

// modelled is a data directory with the series of a modelled cluster, generated once and
// copied for every server that opens it.
type modelled struct {
	args string
	once sync.Once
	dir  string
	err  error
}

const clusterSeries = 250_000

var (
	cluster = modelled{args: fmt.Sprintf("--series=%d --scrapes=3", clusterSeries)}
	// history fills ranges and windows.
	history = modelled{args: fmt.Sprintf("--series=%d --scrapes=15 --scrape-interval=1m --churn=0", clusterSeries)}
	// few are replayed in no time.
	few = modelled{args: "--series=20000 --scrapes=3"}
	// busy has many samples in a short time.
	busy = modelled{args: "--series=20000 --scrapes=150 --scrape-interval=4s --churn=0"}
)

func TestMain(m *testing.M) {
	path, err := filepath.Abs("../bench/oomstorm/testdata/path") // promguard rehearse starts clients, too.
	if err != nil {
		panic(err)
	}
	os.Setenv("PATH", path+string(filepath.ListSeparator)+os.Getenv("PATH"))
	code := m.Run()
	for _, c := range []*modelled{&cluster, &history, &few, &busy} {
		_ = os.RemoveAll(c.dir)
	}
	os.Exit(code)
}

// data returns a copy of the data directory.
func (c *modelled) data(t *testing.T) string {
	t.Helper()
	walreplay := binary(t, "walreplay")
	c.once.Do(func() {
		if c.dir, c.err = os.MkdirTemp("", "promguard-e2e-"); c.err != nil {
			return
		}
		args := append([]string{"generate", "--out=" + filepath.Join(c.dir, "data")}, strings.Fields(c.args)...)
		if out, err := exec.Command(walreplay, args...).CombinedOutput(); err != nil {
			c.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	require.NoError(t, c.err)
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(c.dir, "data"))))
	return dir
}

// prometheus starts the patched Prometheus on a data directory.
func prometheus(t *testing.T, data, config string, flags ...string) *server {
	t.Helper()
	return prometheusOf(t, "prometheus", data, config, flags...)
}

// prometheusOf starts one of the Prometheus that are built.
func prometheusOf(t *testing.T, name, data, config string, flags ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	address := freeAddress(t)
	return start(t, address, name, append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + data, "--web.listen-address=" + address,
		"--storage.tsdb.retention.time=100y",
	}, flags...)...)
}

// configFile is the file that a Prometheus reads its configuration from.
func (s *server) configFile() string {
	for _, arg := range s.cmd.Args {
		if file, ok := strings.CutPrefix(arg, "--config.file="); ok {
			return file
		}
	}
	return ""
}

// promguardServer is promguard and the address of its own metrics.
type promguardServer struct {
	*server
	telemetry string
}

func promguard(t *testing.T, upstream *server) promguardServer {
	t.Helper()
	address, telemetry := freeAddress(t), freeAddress(t)
	s := start(t, address, "promguard", "serve", "--upstream.url="+upstream.url,
		"--web.listen-address="+address, "--web.telemetry-address="+telemetry)
	return promguardServer{s, "http://" + telemetry}
}

// leave sends a request, waits until the upstream server works on it, and closes
// the connection. Of an answer that has begun by then it reads nothing. On a busy machine
// the answer may be there before the work is seen: then it sends the request again.
func leave(t *testing.T, url string, working func() bool) {
	t.Helper()
	eventually(t, "the client leaves while the server works", func() bool { return left(t, url, working) })
}

func left(t *testing.T, url string, working func() bool) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	gone, begun := make(chan error, 1), make(chan struct{})
	go func() {
		resp, err := http.DefaultClient.Do(req)
		close(begun)
		if err == nil {
			<-ctx.Done()
			_ = resp.Body.Close()
			err = ctx.Err()
		}
		gone <- err
	}()
	for !working() {
		select {
		case <-begun:
			if !working() {
				return false
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	return errors.Is(<-gone, context.Canceled)
}
