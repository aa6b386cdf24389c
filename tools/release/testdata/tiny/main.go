// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command tiny stands for a binary that takes minutes to build.
package main

func main() { println("tiny") }
