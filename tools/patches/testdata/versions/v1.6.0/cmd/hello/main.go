package main

import (
	"fmt"

	"example.com/hello"
)

func main() { fmt.Println(hello.Greeting()) }
