// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// condition is nil when the status of an object has this condition as True, seen
// for what is asked of the object now.
func condition(o *unstructured.Unstructured, kind string) error {
	status, message := conditionOf(o, kind)
	if status != "True" {
		return fmt.Errorf("%s %s: %s is %q: %s", o.GetKind(), o.GetName(), kind, status, message)
	}
	return nil
}

// conditionOf returns a condition's status, "" if there is none, and its message.
func conditionOf(o *unstructured.Unstructured, kind string) (status, message string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["type"] != kind {
			continue
		}
		if seen, ok := c["observedGeneration"].(int64); ok && seen != o.GetGeneration() {
			return "", fmt.Sprintf("generation %d seen, %d asked", seen, o.GetGeneration())
		}
		status, _ = c["status"].(string)
		message, _ = c["message"].(string)
		reason, _ := c["reason"].(string)
		return status, reason + ": " + message
	}
	return "", "no such condition"
}
