package main

import (
	"fmt"

	"example.com/hello"
	_ "example.com/missing"
)

func main() { fmt.Println(hello.Greeting()) }
