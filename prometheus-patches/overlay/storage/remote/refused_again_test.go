// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package remote

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb"
)

// BenchmarkARequestThatIsRefusedAgain sends a request of which one of 2,001 series is out of
// order, or too old, and is sent again.
func BenchmarkARequestThatIsRefusedAgain(b *testing.B) {
	now := time.Now().UnixMilli()
	for cause, bad := range map[string]int64{"out_of_order": now - 1000, "too_old": now - 100*3600*1000} {
		b.Run("cause="+cause, func(b *testing.B) {
			db, err := tsdb.Open(b.TempDir(), promslog.NewNopLogger(), nil, tsdb.DefaultOptions(), nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, db.Close()) })
			handler := NewWriteHandler(promslog.NewNopLogger(), nil, db, []remoteapi.WriteMessageType{remoteapi.WriteV1MessageType}, false, false)
			request := func(series ...prompb.TimeSeries) []byte {
				payload, _, _, err := buildWriteRequest(nil, series, nil, nil, nil, nil, "snappy")
				require.NoError(b, err)
				return payload
			}
			send := func(payload []byte) int {
				r := httptest.NewRecorder()
				req, err := http.NewRequest(http.MethodPost, "", bytes.NewReader(payload))
				require.NoError(b, err)
				handler.ServeHTTP(r, req)
				return r.Code
			}
			one := func(name string, i int, at int64) prompb.TimeSeries {
				return prompb.TimeSeries{
					Labels: []prompb.Label{
						{Name: "__name__", Value: name}, {Name: "code", Value: "200"}, {Name: "ns", Value: fmt.Sprint("n", i%50)},
						{Name: "path", Value: fmt.Sprint("/thing/", i%977)}, {Name: "pod", Value: fmt.Sprint("p-", i)},
					},
					Samples: []prompb.Sample{{Value: 1, Timestamp: at}},
				}
			}
			require.Equal(b, http.StatusNoContent, send(request(one("known", 0, now))))
			var series []prompb.TimeSeries
			for i := range 2000 {
				series = append(series, one("req_total", i, now+1))
			}
			series = append(series, one("known", 0, bad))
			refused := request(series...)
			require.Equal(b, http.StatusBadRequest, send(refused))
			b.ReportAllocs()
			before := usage(b)
			for b.Loop() {
				if send(refused) != http.StatusBadRequest {
					b.Fatal("the request was not refused")
				}
			}
			b.ReportMetric(float64((usage(b)-before).Microseconds())/float64(b.N)/1000, "cpu-ms/request")
		})
	}
}

func usage(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
