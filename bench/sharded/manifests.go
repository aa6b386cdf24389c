// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// manifest is the part of a Kubernetes object that is read here: of a Deployment or a
// StatefulSet what its container runs, of a Prometheus what the operator adds.
type manifest struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct{ Args []string }
			}
		}
		additional `yaml:",inline"`

		Thanos additional
	}
}

type additional struct {
	Args []struct{ Name, Value string } `yaml:"additionalArgs"`
}

// arguments returns what a component is started with, by its manifest, so that what is
// tried here is what is deployed. Servers and sidecars have one of the operator.
func arguments(file, component string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for in := yaml.NewDecoder(f); ; {
		var m manifest
		if err := in.Decode(&m); errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no container", file)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if m.Kind == "Prometheus" {
			of, args := m.Spec.additional, []string(nil)
			if component == "sidecar" {
				of, args = m.Spec.Thanos, []string{component}
			}
			for _, a := range of.Args {
				args = append(args, strings.TrimSuffix("--"+a.Name+"="+a.Value, "="))
			}
			return args, nil
		}
		if c := m.Spec.Template.Spec.Containers; len(c) > 0 {
			return c[0].Args, nil
		}
	}
}

// with returns the arguments with others in place of those with the same flags, and of
// those with the prefixes in drop.
func with(args, drop []string, others ...string) []string {
	for _, o := range others {
		name, _, _ := strings.Cut(o, "=")
		drop = append(slices.Clip(drop), name+"=")
	}
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(drop, func(prefix string) bool { return strings.HasPrefix(arg, prefix) })
	})
	return append(kept, others...)
}
