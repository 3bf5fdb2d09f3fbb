{{- /* The job as a mapping, to look something up. What its references stand for is known only where it runs. */ -}}
{{- define "rowkind.said" -}}
{{- if not .Values.job -}}
{{- fail "`job` is empty: give the job file with --set-file job=job.yaml, or as text below `job: |` in a file passed with -f" -}}
{{- end -}}
{{- if not (kindIs "string" .Values.job) -}}
{{- fail "`job` has to be text: --set-file job=job.yaml, or `job: |` and the job below it. Helm sorts the keys of a mapping, and with them the columns of tables" -}}
{{- end -}}
{{- $said := regexReplaceAll "\\$\\{[^}]*\\}" .Values.job "x" | fromYaml -}}
{{- with $said.Error -}}
{{- fail (printf "`job` is no job file: %s" .) -}}
{{- end -}}
{{- toYaml $said -}}
{{- end -}}

{{- /* The job file, with a checkpoint on the volume if it names none. */ -}}
{{- define "rowkind.job" -}}
{{- $said := include "rowkind.said" . | fromYaml -}}
{{- if and (not .Values.persistence.enabled) (hasPrefix "/" ($said.checkpoint | default "/")) -}}
{{- fail "persistence.enabled is false, so the checkpoint would be lost with the pod: say in the job where else it lies, such as `checkpoint: s3a://bucket/jobs`" -}}
{{- end -}}
{{- if $said.checkpoint -}}
{{- .Values.job -}}
{{- else if hasPrefix "{" (trim .Values.job) -}}
{{- fail "`job` does not say where its checkpoint lies: add `checkpoint: /var/lib/rowkind/checkpoint`" -}}
{{- else -}}
{{- .Values.job | trimSuffix "\n" }}
checkpoint: /var/lib/rowkind/checkpoint
{{ end -}}
{{- end -}}

{{- /* How the port speaks: the job says so. */ -}}
{{- define "rowkind.scheme" -}}
{{- $said := include "rowkind.said" . | fromYaml -}}
{{- hasKey ($said.status | default dict) "certificate" | ternary "HTTPS" "HTTP" -}}
{{- end -}}
