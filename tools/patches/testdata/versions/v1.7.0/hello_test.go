package hello

import (
	"strings"
	"testing"
)

func TestGreeting(t *testing.T) {
	if !strings.EqualFold(Greeting(), "hello") {
		t.Fatal(Greeting())
	}
}
