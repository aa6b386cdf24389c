// Package hello is what the patches change.
package hello

// Greeting is what hello says.
func Greeting() string {
	return "Hello"
}
