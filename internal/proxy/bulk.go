// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"mime"
	"net/http"
	"slices"

	"github.com/promguard/promguard/internal/proxy/remoteread"
	"github.com/promguard/promguard/internal/querylimit"
)

// bulk tells the endpoints of querylimit.ClassBulk, which a policy opens by name.
type bulk uint8

const (
	notBulk bulk = iota
	bulkFederate
	bulkRead
)

const (
	protobufType   = "application/x-protobuf"
	snappyEncoding = "snappy"
)

func bulkEndpoints() []*endpoint {
	return []*endpoint{
		{path: querylimit.EndpointFederate, lists: []string{"match[]"}, bulk: bulkFederate},
		{path: querylimit.EndpointRead, post: true, bulk: bulkRead},
	}
}

// prefix returns the path below which the endpoint is.
func (e *endpoint) prefix() string {
	if e.bulk == bulkFederate {
		return "/"
	}
	return apiPrefix
}

// closed returns an error if the endpoint is not open by itself nor opened.
func (e *endpoint) closed(open []string) error {
	if e.bulk == notBulk || slices.Contains(open, e.Name) {
		return nil
	}
	return &apiError{
		http.StatusNotFound, typeNotFound, "not_found",
		advise("Ask an operator to open it with open: [%s] in promguard.yml", "%s is not open here", e.Name, e.path),
	}
}

// warnings returns what the answer is to carry. Only JSON carries warnings.
func (e *endpoint) warnings(rs querylimit.Refusals) []string {
	if e.bulk != notBulk {
		return nil
	}
	return rs.Warnings()
}

var errOldHTTP = advise("Use HTTP/1.1 or later", "over HTTP/1.0, an answer of this endpoint that is cut off looks whole")

// readBody reads the body of a request. That of a remote read is no form.
func (q *request) readBody(r *http.Request, policy *querylimit.Policy) (form string, err error) {
	if q.endpoint.bulk != notBulk && !r.ProtoAtLeast(1, 1) {
		return "", badData(errOldHTTP)
	}
	if q.endpoint.bulk != bulkRead {
		return readForm(r, policy)
	}
	ct, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if enc := r.Header.Get("Content-Encoding"); err != nil || ct != protobufType || enc != snappyEncoding {
		return "", unsupportedMedia(advise("Use %s with %s", "content type %q with encoding %q is not supported",
			protobufType, snappyEncoding, r.Header.Get("Content-Type"), enc))
	}
	limit := policy.RequestBytesMax()
	body, err := readUpTo(r, limit, policy)
	if err != nil {
		return "", err
	}
	q.remote, err = remoteread.Decode(body, limit)
	switch {
	case errors.Is(err, remoteread.ErrTooLong):
		return "", policy.RefuseRequestBytes()
	case err != nil:
		return "", badData(err)
	}
	q.texts = q.remote.Selectors()
	return "", nil
}

func (q *request) windows() []querylimit.Window {
	if q.remote == nil {
		return nil
	}
	return q.remote.Windows()
}

// rewriteRead makes out a remote read, and returns its body.
func (q *request) rewriteRead(out *http.Request) string {
	encoded, err := q.remote.Encode()
	if err != nil { // What was decoded can be encoded.
		panic(err)
	}
	body := string(encoded)
	out.URL.RawQuery = q.encode()
	out.Header.Set("Content-Type", protobufType)
	out.Header.Set("Content-Encoding", snappyEncoding)
	setBody(out, body)
	return body + "?" + out.URL.RawQuery
}
