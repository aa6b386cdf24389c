# Pictures of the dashboards. Included by the Makefile.

## panels: pictures of the dashboards into docs/pictures, drawn by Grafana's components, which needs npm and Chromium; PANELS_ARGS=--check asks and checks only
.PHONY: panels
PANELS_ARGS ?=
panels: prometheus promguard
	go run ./tools/panels --bin=$(BIN) $(PANELS_ARGS)
