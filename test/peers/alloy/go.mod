module github.com/promguard/promguard/test/peers/alloy

go 1.26.0

require github.com/grafana/alloy/syntax v0.1.0

require (
	github.com/fatih/color v1.15.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.17 // indirect
	github.com/ohler55/ojg v1.20.1 // indirect
	golang.org/x/sys v0.6.0 // indirect
)
