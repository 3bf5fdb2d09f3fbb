{{- /* The texts of all jobs, by file path: one file, or the files of a folder that the service watches. */ -}}
{{- define "rowkind.texts" -}}
{{- if and .Values.job .Values.jobs -}}
{{- fail "`job` and `jobs` cannot be combined: set `job` for one job, or `jobs` for several" -}}
{{- end -}}
{{- if not (or .Values.job .Values.jobs) -}}
{{- fail "`job` is empty: give the job file with --set-file job=job.yaml, or as text below `job: |` in a file passed with -f" -}}
{{- end -}}
{{- if and .Values.jobs (gt (int .Values.executors.count) 0) -}}
{{- fail "`executors` and `jobs` cannot be combined, because the jobs would share one address for executors: install each job as its own release" -}}
{{- end -}}
{{- if and .Values.jobs .Values.savepoint -}}
{{- fail "`savepoint` and `jobs` cannot be combined, because a savepoint belongs to one job: install that job as its own release" -}}
{{- end -}}
{{- $texts := dict -}}
{{- with .Values.job -}}
{{- $_ := set $texts "job.yaml" . -}}
{{- end -}}
{{- range $name, $text := .Values.jobs -}}
{{- $_ := set $texts (printf "jobs/%s.yaml" $name) $text -}}
{{- end -}}
{{- toJson $texts -}}
{{- end -}}

{{- /* The name of the value that has the job file of a path. */ -}}
{{- define "rowkind.valued" -}}
{{- . | trimSuffix ".yaml" | replace "/" "." -}}
{{- end -}}

{{- /* A job as a mapping, to read settings from. References are resolved only where the job runs; here they have their
default values, or `a-reference` if they have none. */ -}}
{{- define "rowkind.said" -}}
{{- $name := include "rowkind.valued" (index . 0) -}}
{{- $text := index . 1 -}}
{{- if not (kindIs "string" $text) -}}
{{- fail (printf "`%s` must be text, because Helm sorts the keys of a mapping, and with them the columns of tables: use --set-file %s=job.yaml, or `%s: |` with the job below it" $name $name $name) -}}
{{- end -}}
{{- $said := regexReplaceAll "\\$\\{[^}]*:-([^}]*)\\}" $text "${1}" -}}
{{- $said = regexReplaceAll "\\$\\{[^}]*\\}" $said "a-reference" | fromYaml -}}
{{- with $said.Error -}}
{{- fail (printf "`%s` is not a job file: %s" $name .) -}}
{{- end -}}
{{- toYaml $said -}}
{{- end -}}

{{- /* The job files by path. A job without a checkpoint gets one on the volume. */ -}}
{{- define "rowkind.jobs" -}}
{{- $files := dict -}}
{{- range $path, $text := include "rowkind.texts" . | fromJson -}}
{{- $name := include "rowkind.valued" $path -}}
{{- $said := include "rowkind.said" (list $path $text) | fromYaml -}}
{{- if and (not $.Values.persistence.enabled) (not (regexMatch "^(a-reference|s3a?://)" (toString $said.checkpoint))) -}}
{{- fail "persistence.enabled is false, so the checkpoint would be lost with the pod: set another place in the job, such as `checkpoint: s3a://bucket/jobs`" -}}
{{- end -}}
{{- if not $said.checkpoint -}}
{{- if hasPrefix "{" (trim $text) -}}
{{- fail (printf "`%s` has no checkpoint: add `checkpoint: /var/lib/rowkind/checkpoint`" $name) -}}
{{- end -}}
{{- $text = printf "%s\ncheckpoint: /var/lib/rowkind/checkpoint\n" ($text | trimSuffix "\n") -}}
{{- end -}}
{{- $_ := set $files $path $text -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{- /* The scheme of the port, by the `status` of the job, or of the first of several jobs. */ -}}
{{- define "rowkind.scheme" -}}
{{- $texts := include "rowkind.texts" . | fromJson -}}
{{- $first := $texts | keys | sortAlpha | first -}}
{{- $said := include "rowkind.said" (list $first (get $texts $first)) | fromYaml -}}
{{- hasKey ($said.status | default dict) "certificate" | ternary "HTTPS" "HTTP" -}}
{{- end -}}
