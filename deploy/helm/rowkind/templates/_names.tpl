{{- define "rowkind.chart" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "rowkind.name" -}}
{{- $chart := include "rowkind.chart" . -}}
{{- $name := contains $chart .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $chart) -}}
{{- .Values.fullnameOverride | default $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "rowkind.selector" -}}
app.kubernetes.io/name: {{ include "rowkind.chart" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of executors, which the service does not select. */ -}}
{{- define "rowkind.executorSelector" -}}
app.kubernetes.io/name: {{ include "rowkind.chart" . }}-executor
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of the pod of `helm test`. */ -}}
{{- define "rowkind.testSelector" -}}
app.kubernetes.io/name: {{ include "rowkind.chart" . }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of the pods of the audit, which the service does not select. */ -}}
{{- define "rowkind.verifySelector" -}}
app.kubernetes.io/name: {{ include "rowkind.chart" . }}-verify
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "rowkind.labels" -}}
{{- $more := dict
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
-}}
{{- merge (include "rowkind.selector" . | fromYaml) $more .Values.commonLabels | toYaml -}}
{{- end -}}

{{- /* The metadata of an object. Takes `root`, and optionally `suffix`, `namespace`, `labels` and `annotations`. */ -}}
{{- define "rowkind.metadata" -}}
name: {{ include "rowkind.name" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- merge (include "rowkind.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "rowkind.image" -}}
{{- with .Values.image.digest -}}
{{- $.Values.image.repository }}@{{ . }}
{{- else -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "rowkind.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "rowkind.name" .) "default") -}}
{{- end -}}
