// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"
)

// monitoring is the namespace that the manifests name.
const monitoring = "monitoring"

// Client applies objects of any kind and remembers what the API server warned of.
type Client struct {
	// Typed is for what Kubernetes itself has.
	Typed kubernetes.Interface
	// Config is what the clients were made of.
	Config *rest.Config

	dynamic  dynamic.Interface
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	warnings *warnings
}

// warnings are of the API server, in the order of their arrival.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader is rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// Warnings returns what the server has warned of since the last call.
func (c Client) Warnings() []string {
	c.warnings.mu.Lock()
	defer c.warnings.mu.Unlock()
	texts := c.warnings.texts
	c.warnings.texts = nil
	return texts
}

func newClient(t testing.TB, config *rest.Config) Client {
	t.Helper()
	w := &warnings{}
	config.WarningHandler = w
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	untyped, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	return Client{Typed: typed, Config: config, dynamic: untyped, mapper: mapper, warnings: w}
}

// Objects reads a stream of YAML.
func Objects(t testing.TB, stream []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// resource is where the objects of a kind are.
func (c Client) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // A definition that came later.
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}

// TryApply does what kubectl apply --server-side does with one object, and returns
// what the server made of it.
func (c Client) TryApply(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := c.resource(object.GroupVersionKind(), object.GetNamespace())
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return resource.Patch(ctx, object.GetName(), types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: "kubectl", FieldValidation: metav1.FieldValidationStrict})
}

// Apply applies all objects; none may be refused, nor warned of.
func (c Client) Apply(t testing.TB, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	c.Warnings()
	var applied []*unstructured.Unstructured
	for _, o := range objects {
		result, err := c.TryApply(t.Context(), o)
		require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
		require.Empty(t, c.Warnings(), "%s %s", o.GetKind(), o.GetName())
		applied = append(applied, result)
	}
	return applied
}

// Get reads the object again.
func (c Client) Get(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource, err := c.resource(o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, o.GetName(), metav1.GetOptions{})
}

// Delete removes the objects, the last first, and waits until they are gone.
func (c Client) Delete(t testing.TB, objects []*unstructured.Unstructured) {
	t.Helper()
	// At a test's end its own context is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	background := metav1.DeletePropagationBackground
	for _, o := range slices.Backward(objects) {
		resource, err := c.resource(o.GroupVersionKind(), o.GetNamespace())
		require.NoError(t, err)
		err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
		}
	}
	for _, o := range objects {
		WaitFor(t, fmt.Sprintf("%s %s is gone", o.GetKind(), o.GetName()), func() error {
			if _, err := c.Get(ctx, o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
}

// object is a reference to be given to Get.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// untyped makes an object of a typed one.
func untyped(t testing.TB, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}

// WaitFor waits until condition says nil, for five minutes at most.
func WaitFor(t testing.TB, what string, condition func() error) {
	t.Helper()
	WaitUpTo(t, 5*time.Minute, what, condition)
}

// WaitUpTo is WaitFor with another limit.
func WaitUpTo(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, "does not come: "+what, "%v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// merge changes an object that is there by a JSON merge patch.
func (c Client) merge(t testing.TB, o *unstructured.Unstructured, patch string) {
	t.Helper()
	resource, err := c.resource(o.GroupVersionKind(), o.GetNamespace())
	require.NoError(t, err)
	_, err = resource.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// replace makes the object's spec what it was, whoever changed it.
func (c Client) replace(t testing.TB, o *unstructured.Unstructured) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	resource, err := c.resource(o.GroupVersionKind(), o.GetNamespace())
	require.NoError(t, err)
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // With its controller.
		now, err := c.Get(ctx, o)
		if err != nil {
			return err
		}
		now.Object["spec"] = o.DeepCopy().Object["spec"]
		_, err = resource.Update(ctx, now, metav1.UpdateOptions{})
		return err
	}))
}

// list returns what there is of one resource in the namespace of the tests.
func (c Client) list(ctx context.Context, groupVersion, resource string) ([]unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return nil, err
	}
	found, err := c.dynamic.Resource(gv.WithResource(resource)).Namespace(monitoring).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}
