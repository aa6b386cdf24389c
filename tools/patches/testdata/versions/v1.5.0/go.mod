module example.com/hello

go 1.99.0
