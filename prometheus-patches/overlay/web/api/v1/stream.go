// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	jsoniter "github.com/json-iterator/go"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// streamPiece is how many bytes of an answer are encoded before they are sent,
// and between two looks at the context. An error that comes before the first
// piece was sent still has its status.
const streamPiece = 64 << 10

// respondWithin answers a read that is counted: it sends the answer while it
// encodes it, with the same bytes as the codec's, and stops soon after the
// context is done. Memory does not grow with the answer. It returns false, and
// does nothing, for any other request.
func (api *API) respondWithin(w http.ResponseWriter, req *http.Request, codec Codec, resp *Response) bool {
	ctx := req.Context()
	account := storage.ReadAccountFrom(ctx)
	if _, ok := codec.(JSONCodec); !ok || account == nil {
		return false
	}
	w.Header().Set("Content-Type", codec.ContentType().String())
	e := newStreamEncoder(ctx, account, w)
	err := e.encode(resp)
	switch {
	case err == nil:
	case e.sent == 0:
		api.respondError(w, returnAPIError(err), nil)
	default:
		// The status is gone: only a broken connection tells the client.
		account.Break(err)
	}
	return true
}

// streamEncoder encodes large values element by element.
type streamEncoder struct {
	ctx     context.Context
	account storage.ReadAccount
	w       http.ResponseWriter
	stream  *jsoniter.Stream
	sent    int64
	// warnings are what was found out while encoding.
	warnings []string
}

func newStreamEncoder(ctx context.Context, account storage.ReadAccount, w http.ResponseWriter) *streamEncoder {
	return &streamEncoder{
		ctx: ctx, account: account, w: w,
		stream: jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, nil, 4<<10),
	}
}

func (e *streamEncoder) encode(resp *Response) error {
	if err := e.checkSize(resp.Data); err != nil {
		return err
	}
	rest := *resp
	rest.Data = nil
	head, _, err := splitEnvelope(&rest)
	if err != nil {
		return err
	}
	e.stream.WriteRaw(head)
	if resp.Data != nil {
		e.stream.WriteRaw(`,"data":`)
		if err := e.data(resp.Data); err != nil {
			return err
		}
	}
	rest.Warnings = append(slices.Clip(rest.Warnings), e.warnings...)
	_, tail, err := splitEnvelope(&rest)
	if err != nil {
		return err
	}
	e.stream.WriteRaw(tail)
	return e.send()
}

// splitEnvelope encodes a response without data and cuts it where the data
// would stand: behind the status.
func splitEnvelope(resp *Response) (head, tail string, err error) {
	codec := jsoniter.ConfigCompatibleWithStandardLibrary
	whole, err := codec.Marshal(resp)
	if err != nil {
		return "", "", err
	}
	status, err := codec.Marshal(resp.Status)
	if err != nil {
		return "", "", err
	}
	cut := len(`{"status":`) + len(status)
	return string(whole[:cut]), string(whole[cut:]), nil
}

// data encodes the types of answer that grow with the database, or with what is
// scraped, element by element, and all others at once.
func (e *streamEncoder) data(data any) error {
	switch v := data.(type) {
	case *seriesStream:
		return e.series(v)
	case []string:
		if v != nil {
			return writeArray(e, slices.All(v), func(s string) { e.stream.WriteVal(s) })
		}
	case *QueryData, *TargetDiscovery, *RuleDiscovery:
		if !hasOwnEncoding(reflect.TypeOf(v)) {
			return e.fields(reflect.ValueOf(v).Elem())
		}
	}
	return e.value(reflect.ValueOf(data))
}

// value encodes results of PromQL, slices and maps by string element by element.
// What has an encoding of its own is left to it.
func (e *streamEncoder) value(v reflect.Value) error {
	if v.IsValid() && !hasOwnEncoding(v.Type()) {
		switch result := v.Interface().(type) {
		case promql.Vector:
			return writeArray(e, slices.All(result), func(s promql.Sample) { marshalSampleJSON(s, e.stream) })
		case promql.Matrix:
			return writeArray(e, slices.All(result), e.points)
		}
	}
	switch {
	case v.IsValid() && hasOwnEncoding(v.Type()):
		e.stream.WriteVal(v.Interface())
	case v.Kind() == reflect.Slice && !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8:
		return writeArray(e, func(yield func(int, reflect.Value) bool) {
			for i := range v.Len() {
				if !yield(i, v.Index(i)) {
					return
				}
			}
		}, func(element reflect.Value) { e.stream.WriteVal(element.Interface()) })
	case v.Kind() == reflect.Map && !v.IsNil() && v.Type().Key().Kind() == reflect.String:
		return e.stringMap(v)
	case !v.IsValid():
		e.stream.WriteNil()
	default:
		e.stream.WriteVal(v.Interface())
	}
	return e.check()
}

// points encodes a series of a matrix as the codec does, but point by point: one series
// may have millions.
func (e *streamEncoder) points(s promql.Series) {
	e.stream.WriteObjectStart()
	e.stream.WriteObjectField("metric")
	marshalLabelsJSON(s.Metric, e.stream)
	writePoints(e, "values", s.Floats, marshalFPointJSON)
	writePoints(e, "histograms", s.Histograms, marshalHPointJSON)
	e.stream.WriteObjectEnd()
}

func writePoints[T any](e *streamEncoder, field string, points []T, write func(T, *jsoniter.Stream)) {
	if len(points) == 0 || e.stream.Error != nil {
		return
	}
	e.stream.WriteMore()
	e.stream.WriteObjectField(field)
	_ = writeArray(e, slices.All(points), func(p T) { write(p, e.stream) }) // The stream keeps the error.
}

func (e *streamEncoder) stringMap(v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	e.stream.WriteObjectStart()
	for i, key := range keys {
		if i > 0 {
			e.stream.WriteMore()
		}
		e.stream.WriteVal(key.String())
		e.stream.WriteRaw(":")
		e.stream.WriteVal(v.MapIndex(key).Interface())
		if err := e.check(); err != nil {
			return err
		}
	}
	e.stream.WriteObjectEnd()
	return e.stream.Error
}

// fields encodes a struct field by field, as the codec does: by the names in
// their tags, without those that may be left out when they are empty.
func (e *streamEncoder) fields(v reflect.Value) error {
	e.stream.WriteObjectStart()
	first := true
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && isEmpty(v.Field(i)) {
			continue
		}
		if !first {
			e.stream.WriteMore()
		}
		first = false
		e.stream.WriteObjectField(name)
		if err := e.value(v.Field(i)); err != nil {
			return err
		}
	}
	e.stream.WriteObjectEnd()
	return e.stream.Error
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// hasOwnEncoding says whether the codec asks a type how it is encoded.
func hasOwnEncoding(t reflect.Type) bool {
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler)
}

// isEmpty says whether the codec leaves a field out if it may.
func isEmpty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// writeArray encodes a sequence of elements as an array, with a look at the
// context and at the buffer after each.
func writeArray[T any](e *streamEncoder, elements func(func(int, T) bool), write func(T)) (err error) {
	e.stream.WriteArrayStart()
	for i, element := range elements {
		if i > 0 {
			e.stream.WriteMore()
		}
		write(element)
		if err := e.check(); err != nil {
			return err
		}
	}
	e.stream.WriteArrayEnd()
	return e.stream.Error
}

// check sends what is encoded if it is enough for a piece, and looks at the
// context when it does. The stream keeps an error.
func (e *streamEncoder) check() error {
	if e.stream.Error != nil || e.stream.Buffered() < streamPiece {
		return e.stream.Error
	}
	if e.stream.Error = e.account.Yield(e.ctx); e.stream.Error != nil {
		return e.stream.Error
	}
	return e.send()
}

func (e *streamEncoder) send() error {
	if e.stream.Error != nil {
		return e.stream.Error
	}
	n, err := e.w.Write(e.stream.Buffer())
	e.sent += int64(n)
	e.stream.SetBuffer(e.stream.Buffer()[:0])
	e.stream.Error = err
	return err
}

// Bytes of JSON around the values of an answer: what a sample, an element of a
// vector or matrix, a native histogram and one of its buckets have at least.
const (
	pointJSON     = len(`[1700000000,"0"],`)
	elementJSON   = len(`{"metric":{},"value":},`)
	labelJSON     = len(`"":"",`) - 2 // labels.Labels holds two lengths for each.
	histogramJSON = len(`{"count":"0","sum":"0","buckets":[]}`)
	bucketJSON    = len(`[0,"1","2","3"],`)
	exemplarJSON  = len(`{"labels":{},"value":"0","timestamp":1700000000.000},`)
	nameJSON      = len(`"",`)
	metadataJSON  = len(`{"type":"","help":"","unit":""},`)
)

// checkSize refuses an answer that is larger than it may be, before its first
// byte. The size is reckoned from below, in a small part of the time that the
// encoding takes.
func (e *streamEncoder) checkSize(data any) error {
	if e.account.Bounds().ResponseBytes == 0 {
		return nil
	}
	size := int64(0)
	switch v := data.(type) {
	case *QueryData:
		size = resultSize(v)
	case []exemplar.QueryResult:
		for _, r := range v {
			size += int64(r.SeriesLabels.ByteSize())
			for i := range r.Exemplars {
				size += int64(exemplarJSON) + int64(r.Exemplars[i].Labels.ByteSize())
			}
		}
	case []string:
		for _, name := range v {
			size += int64(nameJSON + len(name))
		}
	case map[string][]metadata.Metadata:
		for name, list := range v {
			size += int64(nameJSON + len(name))
			for i := range list {
				size += int64(metadataJSON + len(list[i].Type) + len(list[i].Help) + len(list[i].Unit))
			}
		}
	case []metricMetadata:
		for i := range v {
			m := &v[i]
			size += int64(metadataJSON+len(m.MetricFamily)+len(m.Type)+len(m.Help)+len(m.Unit)) + int64(m.Target.ByteSize())
		}
	}
	return e.account.CheckResponse(size)
}

func resultSize(d *QueryData) int64 {
	size := 0
	switch v := d.Result.(type) {
	case promql.Vector:
		for i := range v {
			size += elementJSON + pointJSON + labelsSize(v[i].Metric.ByteSize())
			size += histogramSize(v[i].H)
		}
	case promql.Matrix:
		for i := range v {
			size += elementJSON + labelsSize(v[i].Metric.ByteSize()) + len(v[i].Floats)*pointJSON
			for _, p := range v[i].Histograms {
				size += histogramSize(p.H)
			}
		}
	}
	return int64(size)
}

func histogramSize(h *histogram.FloatHistogram) int {
	if h == nil {
		return 0
	}
	return histogramJSON + bucketJSON*(len(h.PositiveBuckets)+len(h.NegativeBuckets))
}

// labelsSize reckons the JSON of labels from their size in memory. Kubernetes
// labels are about 16 bytes each, name and value.
func labelsSize(inMemory uint64) int { return int(inMemory) + int(inMemory)/16*labelJSON }
