module example.com/hello

go 1.26.0

require github.com/prometheus/common v0.0.0

replace github.com/prometheus/common => ./common
