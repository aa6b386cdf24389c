// Package shared is kept in the repository and copied into the tree.
package shared

// Answer is the same in both.
const Answer = 42
