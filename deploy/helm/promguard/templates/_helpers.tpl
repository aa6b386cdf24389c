{{- define "promguard.fullname" -}}
{{- if contains "promguard" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-promguard" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "promguard.selectorLabels" -}}
app.kubernetes.io/name: promguard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "promguard.labels" -}}
{{ include "promguard.selectorLabels" . }}
app.kubernetes.io/component: proxy
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

{{- /* GOMEMLIMIT: nine tenths of the container's limit of memory, unless it is given. */}}
{{- define "promguard.goMemLimit" -}}
{{- if .Values.goMemLimit -}}
{{ .Values.goMemLimit }}
{{- else -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- $limit = ternary (printf "%.0f" $limit) (toString $limit) (kindIs "float64" $limit) -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $unit := regexFind "[a-zA-Z]*$" $limit -}}
{{- if and $limit (not (and (hasKey $units $unit) (regexMatch "^[0-9]+([.][0-9]+)?[a-zA-Z]*$" $limit))) -}}
{{- fail (printf "resources.limits.memory is %q: write it like 512Mi or 1Gi, or set goMemLimit" $limit) -}}
{{- end -}}
{{- if $limit -}}
{{ div (mulf (trimSuffix $unit $limit | float64) (get $units $unit) 0.9 | int64) 1048576 }}MiB
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Ports of the servers' pods: upstream.port, or those of the URLs. */}}
{{- define "promguard.upstreamPorts" -}}
{{- $ports := list -}}
{{- if .Values.upstream.port -}}
{{- $ports = list .Values.upstream.port -}}
{{- else -}}
{{- range .Values.upstream.urls -}}
{{- $url := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) -}}
{{- $ports = append $ports (int ($port | default (ternary "443" "80" (eq $url.scheme "https")))) -}}
{{- end -}}
{{- end -}}
{{ $ports | uniq | toJson }}
{{- end }}
