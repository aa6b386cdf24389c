// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
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

func freePort(ts *testscript.TestScript, _ bool, vars []string) {
	for _, v := range vars {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		defer l.Close() // Only then, so that no two are the same.
		ts.Setenv(v, l.Addr().String())
	}
}

// sendSignal is for what the command kill of testscript does not know.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP}
	ts.Check(ts.BackgroundCmds()[0].Process.Signal(signals[args[0]]))
}

// startUpstream serves what stands for a Prometheus: build information, and for
// every other path an answer that repeats path and parameters. The query "slow"
// takes a second.
func startUpstream(ts *testscript.TestScript, _ bool, args []string) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("query") == "slow" {
			time.Sleep(time.Second)
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
// if that takes more than 10s.
func httpget() {
	method := flag.String("X", http.MethodGet, "method")
	form := flag.String("d", "", "form of a POST")
	user := flag.String("u", "", "user:password")
	match := flag.String("match", "", "regular expression")
	flag.Parse()
	want := regexp.MustCompile(*match)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
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
