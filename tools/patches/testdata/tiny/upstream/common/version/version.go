// Package version stands for the one that a build stamps.
package version

var Version, Revision, Branch, BuildUser string
