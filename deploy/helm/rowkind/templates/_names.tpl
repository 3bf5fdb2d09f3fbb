{{- define "rowkind.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "rowkind.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rowkind.labels" -}}
{{ include "rowkind.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "rowkind.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "rowkind.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "rowkind.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- /* What the job's pod and its executors have alike: its file and the Secrets. */ -}}
{{- define "rowkind.mounts" -}}
- name: job
  mountPath: /etc/rowkind
  readOnly: true
{{- range .Values.secretFiles }}
- name: secret-{{ . }}
  mountPath: /run/secrets/rowkind/{{ . }}
  readOnly: true
{{- end }}
- name: checkpoint
  mountPath: /var/lib/rowkind
{{- end -}}

{{- define "rowkind.volumes" -}}
- name: job
  configMap:
    name: {{ include "rowkind.name" . }}
    items:
      - key: job.yaml
        path: job.yaml
      {{- range $file, $_ := .Values.schemas }}
      - key: {{ $file }}
        path: schemas/{{ $file }}
      {{- end }}
      {{- if .Values.executors.count }}
      - key: spark-defaults.conf
        path: spark/spark-defaults.conf
      - key: executor.yaml
        path: spark/executor.yaml
      {{- end }}
{{- range .Values.secretFiles }}
- name: secret-{{ . }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- /* Environment of a container: that of the values, and more. Takes the values and a list. */ -}}
{{- define "rowkind.environment" -}}
{{- $values := index . 0 -}}
{{- with concat $values.env (index . 1) -}}
env:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with $values.secretEnv -}}
envFrom:
  {{- range . }}
  - secretRef:
      name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "rowkind.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "rowkind.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
