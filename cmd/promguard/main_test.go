// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"promguard": main,
		"httpget":   httpget,
	})
}

// TestScripts runs the real binary as an operator would. Besides the usual
// commands, scripts have:
//
//	freeport VAR...   sets each VAR to a free address on the loopback interface
//	upstream [ADDR]   starts an upstream server and sets UPSTREAM to its URL
//	strange           starts servers that answer in strange ways, see startStrange
//	signal NAME       sends TERM or HUP to the oldest background command
//	httpget ...       see func httpget
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"freeport": freePort,
			"upstream": startUpstream,
			"strange":  startStrange,
			"signal":   sendSignal,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// port is the last that freePort gave. It lies below those that the kernel gives to
// clients, so that none of them takes it before a process does.
var port atomic.Uint32

func freePort(ts *testscript.TestScript, _ bool, vars []string) {
	port.CompareAndSwap(0, 10_000+rand.Uint32N(10_000)) // Another one than a run beside this one.
	for len(vars) > 0 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port.Add(1)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		ts.Check(err)
		ts.Check(l.Close())
		ts.Setenv(vars[0], l.Addr().String())
		vars = vars[1:]
	}
}

// sendSignal is for what the command kill of testscript does not know.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP}
	ts.Check(ts.BackgroundCmds()[0].Process.Signal(signals[args[0]]))
}

// startUpstream serves what stands for a Prometheus: build information, and for
// every other path an answer that repeats path and parameters. The query "held" is
// answered when the query "go" has been asked.
func startUpstream(ts *testscript.TestScript, _ bool, args []string) {
	release := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("query") {
		case "held":
			<-release
		case "go":
			close(release)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":["%s?%s"]}`, r.URL.Path, r.Form.Encode())
	}))
	if len(args) > 0 {
		l, err := net.Listen("tcp", args[0])
		ts.Check(err)
		srv.Listener.Close()
		srv.Listener = l
	}
	srv.Start()
	ts.Defer(srv.Close)
	ts.Setenv("UPSTREAM", srv.URL)
}

// httpget prints status code and body of an answer, once the address accepts
// connections. With -match it asks again until the answer matches. It exits 1
// if that takes two minutes.
func httpget() {
	method := flag.String("X", http.MethodGet, "method")
	form := flag.String("d", "", "form of a POST")
	user := flag.String("u", "", "user:password")
	match := flag.String("match", "", "regular expression")
	flag.Parse()
	want := regexp.MustCompile(*match)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text, err := request(*method, flag.Arg(0), *form, *user)
		if err == nil && want.MatchString(text) {
			fmt.Print(text)
			return
		}
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, text, err)
			os.Exit(1)
		}
	}
}

func request(method, target, form, user string) (string, error) {
	req, err := http.NewRequest(method, target, strings.NewReader(form))
	if err != nil {
		return "", err
	}
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if name, password, ok := strings.Cut(user, ":"); ok {
		req.SetBasicAuth(name, password)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d\n%s", res.StatusCode, body), err
}
