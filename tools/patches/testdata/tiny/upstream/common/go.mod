module github.com/prometheus/common

go 1.26.0
