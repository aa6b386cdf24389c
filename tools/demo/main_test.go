// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asMain makes the test binary the demo.
const asMain = "PROMGUARD_TEST_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// demo is a running demo.
type demo struct {
	t     *testing.T
	cmd   *exec.Cmd
	data  string
	ports [4]int
	done  chan struct{}

	mu  sync.Mutex
	out strings.Builder
}

// Write collects the output.
func (d *demo) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Write(b)
}

func (d *demo) output() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.String()
}

// startDemo starts the demo on free ports, with the binaries of PROMGUARD_BIN.
func startDemo(t *testing.T, args ...string) *demo {
	t.Helper()
	bin := os.Getenv("PROMGUARD_BIN")
	if bin == "" {
		t.Skip("PROMGUARD_BIN is not set; make test sets it")
	}
	d := &demo{t: t, data: t.TempDir(), ports: freePorts(t), done: make(chan struct{})}
	self, err := os.Executable()
	require.NoError(t, err)
	d.cmd = exec.Command(self, append([]string{
		"--bin=" + bin, "--data=" + d.data, "--scrape-interval=1s",
		"--prometheus.port=" + strconv.Itoa(d.ports[0]), "--proxy.port=" + strconv.Itoa(d.ports[1]),
		"--telemetry.port=" + strconv.Itoa(d.ports[2]), "--exposition.port=" + strconv.Itoa(d.ports[3]),
	}, args...)...)
	d.cmd.Env = append(os.Environ(), asMain+"=1")
	d.cmd.Stdout, d.cmd.Stderr = d, d
	require.NoError(t, d.cmd.Start())
	go func() {
		_ = d.cmd.Wait() // The exit status is in ProcessState.
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.done
		d.eventually("none is left running", func() bool { return len(d.processes()) == 0 })
	})
	return d
}

func freePorts(t *testing.T) (ports [4]int) {
	t.Helper()
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// waitUp waits until the commands to try are printed.
func (d *demo) waitUp() {
	d.t.Helper()
	d.waitFor("Ctrl-C stops all.")
}

// waitStarted waits until the processes run; that is seconds before waitUp.
func (d *demo) waitStarted() {
	d.t.Helper()
	d.waitFor("waiting for the first scrape")
}

func (d *demo) waitFor(text string) {
	d.t.Helper()
	d.eventually(text, func() bool {
		select {
		case <-d.done:
			require.FailNow(d.t, "the demo ended", d.output())
		default:
		}
		return strings.Contains(d.output(), text)
	})
}

// eventually waits for what takes the demo a moment, however busy the machine.
func (d *demo) eventually(what string, holds func() bool) {
	d.t.Helper()
	require.Eventually(d.t, holds, 10*time.Minute, 50*time.Millisecond, what)
}

// waitEnd waits for the demo to end and returns its exit status.
func (d *demo) waitEnd() int {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(10 * time.Minute):
		require.FailNow(d.t, "the demo did not end", d.output())
	}
	return d.cmd.ProcessState.ExitCode()
}

// processes are the numbers of the children that run, by name. Prometheus is
// known by its data directory, promguard by its port.
func (d *demo) processes() map[string]int {
	pids := map[string]int{}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(d.t, err)
	for _, path := range lines {
		b, _ := os.ReadFile(path) // Gone by now: not running.
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		require.NoError(d.t, err)
		switch args := string(b); {
		case pid == d.cmd.Process.Pid:
		case strings.Contains(args, "--storage.tsdb.path="+d.data):
			pids["prometheus"] = pid
		case strings.Contains(args, "--web.telemetry-address="+loopback(d.ports[2])):
			pids["promguard"] = pid
		}
	}
	return pids
}

// commands are the commands that the demo printed: URL and pattern for grep.
func (d *demo) commands() [][]string {
	return regexp.MustCompile(`(?m)^  curl -sg '([^']+)'(?: \| grep '([^']+)')?$`).FindAllStringSubmatch(d.output(), -1)
}

// ask sends a URL as curl -g does: as it is.
func (d *demo) ask(raw string) (int, string) {
	d.t.Helper()
	base, query, _ := strings.Cut(raw, "?")
	u, err := url.Parse(base)
	require.NoError(d.t, err)
	u.RawQuery = query
	res, err := http.DefaultClient.Do(&http.Request{Method: http.MethodGet, URL: u})
	require.NoError(d.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return res.StatusCode, string(body)
}

// answer is Prometheus' envelope around a vector.
type answer struct {
	Status, ErrorType, Error string
	Data                     struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func (d *demo) query(raw string) answer {
	d.t.Helper()
	status, body := d.ask(raw)
	require.Equal(d.t, http.StatusOK, status, body)
	var a answer
	require.NoError(d.t, json.Unmarshal([]byte(body), &a))
	return a
}

// byJob is what the second command shows: the series of each job.
func (d *demo) byJob() map[string]any {
	d.t.Helper()
	series := map[string]any{}
	for _, r := range d.query(d.commands()[1][1]).Data.Result {
		series[r.Metric["job"]] = r.Value[1]
	}
	return series
}

func TestCommandsToTryShowWhatIsSaidAndAnInterruptLeavesNothingRunning(t *testing.T) {
	d := startDemo(t, "--series=5000", "--churn=100")
	d.waitUp()
	commands := d.commands()
	require.Len(t, commands, 3)
	require.Len(t, d.processes(), 2)

	status, body := d.ask(commands[0][1])
	require.Equal(t, http.StatusUnprocessableEntity, status)
	var refusal answer
	require.NoError(t, json.Unmarshal([]byte(body), &refusal))
	require.Equal(t, "error", refusal.Status)
	require.Contains(t, refusal.Error, `{le!=""}`)

	direct := strings.Replace(commands[1][1], strconv.Itoa(d.ports[1]), strconv.Itoa(d.ports[0]), 1)
	d.eventually("both say the same of scrapes that were in time", func() bool {
		through := len(d.query(commands[1][1]).Data.Result)
		return through > 0 && through == len(d.query(direct).Data.Result)
	})

	_, metrics := d.ask(commands[2][1])
	dropped := regexp.MustCompile("(?m)"+commands[2][2]+`\{.*\} (\S+)$`).FindAllStringSubmatch(metrics, -1)
	require.NotEmpty(t, dropped)
	total := 0.0
	for _, m := range dropped {
		n, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		total += n
	}
	require.Greater(t, total, 500.0, "the drop rules drop much of such a cluster")

	// The first scrape of promguard may have been before it listened.
	d.eventually("all is up", func() bool {
		return len(d.query("http://"+loopback(d.ports[0])+"/api/v1/query?query=up<1").Data.Result) == 0
	})

	require.NoError(t, d.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, d.waitEnd(), d.output())
	require.Empty(t, d.processes())
	for _, port := range d.ports {
		l, err := net.Listen("tcp", loopback(port))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestTerminationStopsAll(t *testing.T) {
	d := startDemo(t, "--series=1000")
	d.waitStarted()
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, d.waitEnd(), d.output())
	require.Empty(t, d.processes())
}

func TestKilledDemoLeavesNothingRunning(t *testing.T) {
	d := startDemo(t, "--series=1000")
	d.waitStarted()
	require.NoError(t, d.cmd.Process.Kill())
	d.waitEnd() // startDemo's clean-up looks for what is left.
}

func TestWhenOneProcessDiesTheOthersAreStoppedAndItsLogIsShown(t *testing.T) {
	for _, name := range []string{"prometheus", "promguard"} {
		t.Run(name, func(t *testing.T) {
			d := startDemo(t, "--series=1000")
			d.waitStarted()
			require.NoError(t, syscall.Kill(d.processes()[name], syscall.SIGKILL))
			require.Equal(t, 1, d.waitEnd())
			require.Contains(t, d.output(), "demo: "+name+" stopped (signal: killed); its last log lines:\n  ")
			require.Empty(t, d.processes())
		})
	}
}

func TestExpositionsOfFilesAreScrapedAJobEach(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"first.prom":  "# TYPE apples_total counter\napples_total{kind=\"red\"} 3 1000\n",
		"second.prom": "pears 4\npears_eaten 1\n",
		"other.txt":   "not an exposition",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	d := startDemo(t, "--exposition="+dir)
	d.waitUp()
	d.eventually("each file is scraped", func() bool {
		got := d.byJob()
		return got["first"] == "1" && got["second"] == "2"
	})
	require.NotContains(t, d.byJob(), "other")
	apples := d.query("http://" + loopback(d.ports[1]) + "/api/v1/query?query=apples_total").Data.Result
	require.Len(t, apples, 1, "an old timestamp is not honoured")
	require.Equal(t, "3", apples[0].Value[1])
}

func TestExpositionOfAURLIsScrapedDirectly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan string, 100)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.String():
		default:
		}
		_, _ = io.WriteString(w, "plums 5\n")
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	d := startDemo(t, "--exposition=http://"+l.Addr().String()+"/some/path?module=a&module=b")
	d.waitUp()
	require.Equal(t, "/some/path?module=a&module=b", <-asked)
	d.eventually("what the URL exposes is there", func() bool {
		return len(d.query("http://"+loopback(d.ports[1])+"/api/v1/query?query=plums").Data.Result) == 1
	})
}

func TestRealExpositionsAreServed(t *testing.T) {
	dir := "../../../shared/expositions/nri-k8s-1_35"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no saved expositions here")
	}
	d := startDemo(t, "--exposition="+dir)
	d.waitUp()
	d.eventually("each of their series is scraped", func() bool {
		got := d.byJob()
		return got["api-server"] == "22853" && got["cadvisor"] == "4621"
	})
}
