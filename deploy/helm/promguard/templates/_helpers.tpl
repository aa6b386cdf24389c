{{- define "promguard.fullname" -}}
{{- if contains "promguard" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-promguard" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "promguard.selectorLabels" -}}
app.kubernetes.io/name: promguard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "promguard.labels" -}}
{{ include "promguard.selectorLabels" . }}
app.kubernetes.io/component: read-guard
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "promguard.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "promguard.scheme" -}}
{{ ternary "https" "http" (ne .Values.webConfigSecret "") }}
{{- end }}
