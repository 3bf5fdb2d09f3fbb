{{- /* Shared by the job's pod and its executors: the job file, the Secrets, the volume, and additions from the values. */ -}}
{{- define "rowkind.jobMounts" -}}
- name: job
  mountPath: /etc/rowkind
  readOnly: true
{{- range .Values.secretFiles }}
- name: secret-{{ . }}
  mountPath: /run/secrets/rowkind/{{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "rowkind.mounts" -}}
{{ include "rowkind.jobMounts" . }}
- name: checkpoint
  mountPath: /var/lib/rowkind
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rowkind.volumes" -}}
- name: job
  configMap:
    name: {{ include "rowkind.name" . }}
    items:
      {{- range $path, $_ := include "rowkind.texts" . | fromJson }}
      - key: {{ base $path }}
        path: {{ $path }}
      {{- end }}
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
{{- if not .Values.persistence.enabled }}
- name: checkpoint
  emptyDir: {}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The claim of the checkpoint. */ -}}
{{- define "rowkind.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "checkpoint-%s-0" (include "rowkind.name" .)) -}}
{{- end -}}

{{- define "rowkind.claimed" -}}
- name: checkpoint
  persistentVolumeClaim:
    claimName: {{ include "rowkind.claim" . }}
{{- end -}}

{{- /* The environment of a container: from the values, and from a list. Takes the values and the list. */ -}}
{{- define "rowkind.environment" -}}
{{- $values := index . 0 -}}
{{- with concat $values.env (index . 1) -}}
env:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with $values.envFrom -}}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Scheduling of pods, and their priority. */ -}}
{{- define "rowkind.scheduling" -}}
{{- with .Values.priorityClassName -}}
priorityClassName: {{ . }}
{{ end -}}
{{- with .Values.nodeSelector -}}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .Values.tolerations -}}
tolerations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- with .Values.affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}
