// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import "bytes"

// withPage tells the web UI's index that there is a page of what happens, for a link in
// the status menu. Without limits of reads there is none, and the index is upstream's.
func (h *Handler) withPage(index []byte) []byte {
	if h.options.Reads == nil {
		return index
	}
	return bytes.Replace(index, []byte("</head>"), []byte(`<meta name="guard" content="on"></head>`), 1)
}
