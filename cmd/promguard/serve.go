// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	httpconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/automaxprocs/maxprocs"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/didyoumean"
	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/intake"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/screen"
)

// Times of the HTTP servers. A request as a whole has the deadline of its class;
// these bound what comes before and between requests.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

type serveFlags struct {
	upstreams        upstreamFlags
	listenAddress    string
	telemetryAddress string
	webConfig        string
	externalURL      string
	routePrefix      string
	config           string
	shutdownTimeout  time.Duration
}

func serveCommand(app *kingpin.Application, logConfig *promslog.Config) subcommand {
	var f serveFlags
	c := app.Command("serve", "Serve the read API of a Prometheus server, within limits.")
	f.upstreams.register(c)
	c.Flag("web.listen-address", "Address to serve the API on.").Default(":9091").StringVar(&f.listenAddress)
	c.Flag("web.telemetry-address", "Address to serve /metrics, health, reload and pprof on; plain HTTP, so not for the open network.").Default("127.0.0.1:9092").StringVar(&f.telemetryAddress)
	c.Flag("web.config.file", "File that enables TLS or basic authentication on --web.listen-address, as for Prometheus.").StringVar(&f.webConfig)
	c.Flag("web.external-url", "URL under which clients reach promguard; its path is the default of --web.route-prefix.").PlaceHolder("<URL>").StringVar(&f.externalURL)
	c.Flag("web.route-prefix", "Path below which the API, /-/healthy and /-/ready are served, as for Prometheus; /guard, too, for whom page.users of the policy names.").PlaceHolder("<path>").StringVar(&f.routePrefix)
	c.Flag("web.shutdown-timeout", "How long requests in flight may take to finish after SIGTERM.").Default("25s").DurationVar(&f.shutdownTimeout)
	c.Flag("config.file", "Policy file; without it every limit has its default. Reloaded on SIGHUP and POST /-/reload.").StringVar(&f.config)
	return subcommand{c, func() error { return serve(f, promslog.New(logConfig)) }}
}

// serve returns nil if it was a signal that ended it, while it served or while it
// waited for the upstream server.
func serve(f serveFlags, logger *slog.Logger) error {
	err := serveUntilSignal(f, logger)
	if errors.Is(err, run.ErrSignal) {
		logger.Info("Stopped", "reason", err)
		return nil
	}
	return err
}

// serveUntilSignal checks everything that can be wrong before it logs a line, so
// that a failed start is the one line that main prints.
func serveUntilSignal(f serveFlags, logger *slog.Logger) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // Before the first load: a SIGHUP that early must not end the process.
	defer signal.Stop(hup)

	upstreams, err := f.upstreams.parse()
	if err != nil {
		return err
	}
	prefix, err := routePrefix(f.externalURL, f.routePrefix)
	if err != nil {
		return cli.Misuse(err)
	}
	if err := web.Validate(f.webConfig); err != nil {
		return fmt.Errorf("--web.config.file: %w", didyoumean.Field(err, web.Config{}))
	}
	useMemory(logger)
	reg := newRegistry()
	r := newReloader(f.config, reg, logger)
	policy, err := r.load()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listenAddress)
	if err != nil {
		return fmt.Errorf("--web.listen-address: %w", err)
	}
	defer listener.Close()
	telemetry, err := net.Listen("tcp", f.telemetryAddress)
	if err != nil {
		return fmt.Errorf("--web.telemetry-address: %w", err)
	}
	defer telemetry.Close()

	upstreams.Registerer, upstreams.Logger = reg, logger
	p := proxy.New(proxy.Options{
		Pool: upstream.NewPool(upstreams), Kind: upstreams.Kind, Transport: upstreams.Transport, RoutePrefix: prefix,
		Policy: policy, Registerer: reg, Logger: logger,
	})
	r.apply, r.logLost, r.log = p.SetPolicy, p.CountLostLog, policy.Log
	defer r.close()
	if err := lookUpstream(p, logger); err != nil {
		return err
	}
	if _, err := maxprocs.Set(); err != nil {
		logger.Warn("GOMAXPROCS not set from the CPU quota", "err", err)
	}
	logger.Info("Starting promguard", "version", version.Info(), "build", version.BuildContext(), "upstream", fmt.Sprint(upstreams.URLs), "via", p.Name())

	var g run.Group
	g.Add(run.SignalHandler(context.Background(), os.Interrupt, syscall.SIGTERM))
	addReloads(&g, r, hup)
	addProbes(&g, p)
	addServer(&g, f, p, prefix, intake.New(intake.Memory(), reg), listener, logger)
	addTelemetry(&g, p, r, reg, telemetry, logger)
	return g.Run()
}

// useMemory lets the heap grow to five times what is in use before garbage is collected,
// which would take a fifth of the processor time of a request otherwise: little is in
// use, as caches are small. Nine tenths of the container's memory are the limit.
// GOMEMLIMIT and GOGC go before that.
func useMemory(logger *slog.Logger) {
	if _, err := memlimit.Set(memlimit.WithRatio(0.9)); err != nil {
		logger.Debug("The container's limit of memory is not known", "err", err)
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// newTransport returns what carries requests to the upstream server, with TLS and
// credentials from a file. A client's own Authorization goes before those.
func newTransport(file string) (http.RoundTripper, error) {
	return transportWith(file, proxy.NewDialer())
}

// transportWith is newTransport with what connects.
func transportWith(file string, dialer *net.Dialer) (http.RoundTripper, error) {
	if file == "" {
		t := proxy.NewTransport()
		t.DialContext = dialer.DialContext
		return t, nil
	}
	c, _, err := httpconfig.LoadHTTPConfigFile(file)
	if err != nil {
		return nil, didyoumean.Field(err, httpconfig.HTTPClientConfig{})
	}
	return httpconfig.NewRoundTripperFromConfig(*c, "upstream", httpconfig.WithIdleConnTimeout(90*time.Second), httpconfig.WithDialContextFunc(dialer.DialContext))
}

// lookUpstream looks at the upstream servers once. That none answers does not end a start:
// promguard is ready once one does.
func lookUpstream(p *proxy.Proxy, logger *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := p.Probe(ctx)
	_, mismatch := errors.AsType[*upstream.MismatchError](err)
	switch {
	case ctx.Err() != nil: // Whatever the probe made of that.
		return stoppedLooking{context.Cause(ctx)}
	case mismatch:
		return asStartError(err)
	case err != nil:
		logger.Warn("Starting without the upstream server, which does not answer", "err", err)
	}
	return nil
}

// stoppedLooking is the signal that ended the first look at the upstream server.
type stoppedLooking struct{ signal error }

func (e stoppedLooking) Error() string {
	return e.signal.Error() + " while waiting for the upstream server"
}

func (stoppedLooking) Is(target error) bool { return target == run.ErrSignal }

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		versioncollector.NewCollector("promguard"),
	)
	return reg
}

func addProbes(g *run.Group, p *proxy.Proxy) {
	ctx, cancel := context.WithCancel(context.Background())
	g.Add(func() error {
		return asStartError(p.RunProbes(ctx))
	}, func(error) { cancel() })
}

func addServer(g *run.Group, f serveFlags, p *proxy.Proxy, prefix string, in *intake.Intake, l net.Listener, logger *slog.Logger) {
	users := &webUsers{path: f.webConfig}
	srv := newServer(users.named(apiHandler(p, prefix)), logger)
	l = in.Serve(srv, l)
	g.Add(func() error {
		return web.ServeMultiple([]net.Listener{l}, srv, &web.FlagConfig{WebConfigFile: &f.webConfig}, logger)
	}, func(error) {
		p.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), f.shutdownTimeout)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			logger.Warn("Requests were still in flight at the end of --web.shutdown-timeout; closing their connections", "err", err)
			srv.Close()
		}
	})
}

// addTelemetry comes after addServer: actors are stopped in the order in which
// they were added, and metrics shall be there while requests are finished.
func addTelemetry(g *run.Group, p *proxy.Proxy, r *reloader, reg *prometheus.Registry, l net.Listener, logger *slog.Logger) {
	srv := newServer(telemetryHandler(p, r, reg), logger)
	g.Add(func() error {
		logger.Info("Serving telemetry", "address", l.Addr().String())
		return srv.Serve(l)
	}, func(error) { srv.Close() })
}

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// apiHandler is no http.ServeMux, which would clean paths and redirect.
func apiHandler(p *proxy.Proxy, prefix string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if below, ok := strings.CutPrefix(r.URL.Path, prefix+screen.Route); ok && (below == "" || below[0] == '/') && p.ServePage(w, r) {
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			switch r.URL.Path {
			case prefix + "/-/healthy":
				proxy.HandleHealthy(w, r)
				return
			case prefix + "/-/ready":
				p.HandleReady(w, r)
				return
			}
		}
		p.ServeHTTP(w, r)
	})
}

func telemetryHandler(p *proxy.Proxy, r *reloader, reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg})))
	mux.HandleFunc("GET /-/healthy", proxy.HandleHealthy)
	mux.HandleFunc("GET /-/ready", p.HandleReady)
	mux.HandleFunc("GET /api/v1/promguard/top", p.HandleTop)
	mux.HandleFunc("GET /api/v1/promguard/queries", p.HandleQueries)
	mux.HandleFunc("DELETE /api/v1/promguard/queries", p.HandleQueries)
	page := p.Page()
	mux.Handle(screen.Route, page)
	mux.Handle(screen.Route+"/", page)
	mux.HandleFunc("POST /-/reload", r.handle)
	mux.HandleFunc("PUT /-/reload", r.handle)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.NewCrossOriginProtection().Handler(mux) // A page of another site changes nothing here.
}
