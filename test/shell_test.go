// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	sys "golang.org/x/sys/unix"
)

// Commands that print no table, and those whose own tests read their JSON.
var (
	withoutTable = []string{
		"promguard serve", "promguard startup-probe", "promguard check config", "promguard rules print", "promguard rules inject", "promguard rules suggest",
		"walreplay generate", "walreplay record", "oomstorm search", "oomstorm scenario",
	}
	readElsewhere = []string{"promguard rehearse", "oomstorm run"}
)

// withTable are arguments with which each of the others has something to print. Words in
// capitals are replaced.
var withTable = map[string]string{
	"promguard explain":        "up",
	"promguard policy test":    "--config.file=DIR/policy.yml --query-log=DIR/query.log",
	"promguard policy suggest": "--query-log=DIR/query.log --min-requests=100 --min-period=0s",
	"promguard top":            "--prometheus.url=SERVER",
	"promguard queries":        "--prometheus.url=SERVER",
	"promguard kill":           "--prometheus.url=SERVER --dashboard=d1",
	"promguard size":           "--nodes=10",
	"promguard rules list":     "",
	"promguard rules check":    "--rule-files=DIR/rules.yml",
	"promguard rules estimate": "--exposition=DIR/scrape.prom",
	"walreplay run":            "--wal=DIR/data --binary=PROMETHEUS --count=1",
	"walreplay floor":          "--wal=DIR/data --count=1",
	"walreplay verify":         "--wal=DIR/data --binary=a=PROMETHEUS --binary=b=PROMETHEUS",
}

func TestEveryCommandThatPrintsATableSaysTheSameAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("policy.yml", "limits: {}\n")
	write("query.log", strings.Repeat(`{"ts":"2026-01-02T00:00:00Z","endpoint":"query","queries":["up"],"code":200,"seconds":0.1}`+"\n", 150))
	write("rules.yml", "groups:\n- {name: a, rules: [{alert: Down, expr: up == 0}]}\n")
	write("scrape.prom", "container_fs_reads_total{pod=\"a\"} 5\n")
	out, err := exec.Command(binary(t, "walreplay"), "generate", "--out", filepath.Join(dir, "data"), "--series=1000", "--scrapes=3").CombinedOutput()
	require.NoError(t, err, string(out))
	var commands [][]string
	for _, program := range []string{"promguard", "walreplay", "oomstorm"} {
		for _, command := range commandsOf(t, program) {
			commands = append(commands, append([]string{program}, command...))
		}
	}
	s := prometheus(t, busy.data(t), emptyConfig, "--web.enable-lifecycle", "--query.timeout=10m")
	words := strings.NewReplacer("DIR", dir, "SERVER", s.url, "PROMETHEUS", binary(t, "prometheus"))
	answers := openDashboard(t, s.url, "d1", metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil))
	eventually(t, "the server works on it", func() bool { return len(runningReads(t, s)) > 0 })
	for _, path := range commands {
		name := strings.Join(path, " ")
		args, ok := withTable[name]
		switch has := slices.Contains(flagsOf(t, path), "--output"); {
		case slices.Contains(withoutTable, name):
			require.False(t, has, "%s prints something as JSON: say with which arguments", name)
		case slices.Contains(readElsewhere, name):
			require.True(t, has, name)
		default:
			require.True(t, ok, "%s: does it print a table?", name)
			requireJSON(t, append(path, append(strings.Fields(words.Replace(args)), "-o", "json")...))
		}
	}
	for range cap(answers) {
		require.Contains(t, (<-answers).body, "an operator stopped this request")
	}
}

// requireJSON says that a command prints JSON, one value after the other, and nothing else.
func requireJSON(t *testing.T, args []string) {
	t.Helper()
	code, stdout, stderr := commandLine(t, args...)
	require.Zero(t, code, "%v: %s", args, stderr)
	values := 0
	for d := json.NewDecoder(strings.NewReader(stdout)); ; values++ {
		var value any
		err := d.Decode(&value)
		if err == io.EOF {
			break
		}
		require.NoError(t, err, "%v: %s", args, stdout)
		require.NotEmpty(t, value, "%v: %s", args, stdout)
	}
	require.NotZero(t, values, "%v", args)
}

// terminal is what somebody sees.
type terminal struct {
	*os.File // that of the program

	mu   sync.Mutex
	seen strings.Builder
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// openTerminal returns a terminal of 100 columns.
func openTerminal(t *testing.T) (keys *os.File, screen *terminal) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|sys.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	require.NoError(t, sys.IoctlSetPointerInt(fd, sys.TIOCSPTLCK, 0))
	n, err := sys.IoctlGetInt(fd, sys.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, sys.IoctlSetWinsize(fd, sys.TIOCSWINSZ, &sys.Winsize{Row: 30, Col: 100}))
	screen = &terminal{}
	screen.File, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|sys.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { screen.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := keys.Read(b)
			screen.mu.Lock()
			screen.seen.Write(b[:n])
			screen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return keys, screen
}

// onTerminal starts promguard as what a terminal is for.
func onTerminal(t *testing.T, screen *terminal, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, "promguard"), args...)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen.File, screen.File, screen.File
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	return cmd
}

func TestOnATerminalTopIsDrawnInPlaceUntilCtrlC(t *testing.T) {
	t.Parallel()
	keys, screen := openTerminal(t)
	g := promguardBefore(t, "{}\n", "--upstream.url="+prometheus(t, t.TempDir(), emptyConfig).url)
	top := onTerminal(t, screen, "top", "--watch", "--interval=10ms", "--web.telemetry-address="+strings.TrimPrefix(g.telemetry, "http://"))
	eventually(t, "it is drawn again and again", func() bool { return strings.Count(screen.text(), "\x1b[H") > 3 })
	_, err := keys.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	require.NoError(t, top.Wait(), "that is no failure")
	eventually(t, "the screen of before is back", func() bool { return strings.HasSuffix(screen.text(), "\x1b[?25h\x1b[?1049l") })
	require.Contains(t, screen.text(), "\x1b[?1049h")
	require.Contains(t, screen.text(), "since ")
}

func TestOnATerminalWhatTakesLongSaysHowFarItIsAndThatIsGoneAtItsEnd(t *testing.T) {
	t.Parallel()
	_, screen := openTerminal(t)
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "no", http.StatusTeapot)
	}))
	t.Cleanup(slow.Close)
	estimate := onTerminal(t, screen, "rules", "estimate", "--query-timeout=10m", "--prometheus.url="+slow.URL)
	said := "asking " + slow.URL + ", "
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(screen.text(), said) })
	close(release)
	require.Error(t, estimate.Wait())
	eventually(t, "the error is told where the line was", func() bool {
		text := screen.text()
		return strings.Contains(text[strings.LastIndex(text, said):], "\r\x1b[Kpromguard: "+slow.URL)
	})
}
