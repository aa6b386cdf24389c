package main

import (
	"fmt"

	"github.com/prometheus/common/version"

	"example.com/hello"
)

func main() {
	fmt.Println(hello.Greeting())
	fmt.Println(version.Version, version.Revision, version.Branch, version.BuildUser)
}
