// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/proxy/identity"
)

// webUsers says who asks if --web.config.file has users. The toolkit checks passwords
// before it calls the handler, by the file as it is then: without users it checks
// nothing, and the name in a request is worth nothing.
type webUsers struct {
	path string

	mu       sync.Mutex
	modified time.Time
	checked  bool
}

// named hands on requests with the names of their users.
func (u *webUsers) named(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, _, ok := r.BasicAuth(); ok && u.check() {
			r = identity.WithUser(r, name)
		}
		h.ServeHTTP(w, r)
	})
}

// check reports whether passwords are checked.
func (u *webUsers) check() bool {
	if u.path == "" {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	info, err := os.Stat(u.path)
	if err != nil {
		return false
	}
	if modified := info.ModTime(); !modified.Equal(u.modified) {
		var c struct {
			Users map[string]string `yaml:"basic_auth_users"`
		}
		text, err := os.ReadFile(u.path)
		u.checked = err == nil && yaml.Unmarshal(text, &c) == nil && len(c.Users) > 0
		u.modified = modified
	}
	return u.checked
}
