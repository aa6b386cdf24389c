// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	_ "embed"
	"html/template"
)

//go:embed report.html
var pageText string

// page needs nothing from elsewhere: one file that can be mailed.
var page = template.Must(template.New("report").Funcs(template.FuncMap{"percent": percent}).Parse(pageText))
