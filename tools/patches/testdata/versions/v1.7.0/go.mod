module example.com/hello

go 1.26.0

require example.com/missing v1.0.0
