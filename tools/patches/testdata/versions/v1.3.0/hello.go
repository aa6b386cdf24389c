// Package hello is what the patches change.
package hello

// Parting is what hello says at the end.
func Parting() string {
	return "bye"
}

// Greeting is what hello says.
func Greeting() string {
	return "hello"
}
