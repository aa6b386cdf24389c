// Package shout is new.
package shout

import "strings"

// Shout says it loud.
func Shout(s string) string {
	return strings.ToUpper(s)
}
