{{- /* The texts of all jobs by the files that they become: one, or those of a folder that the service follows. */ -}}
{{- define "rowkind.texts" -}}
{{- if and .Values.job .Values.jobs -}}
{{- fail "`job` and `jobs` are both given: a release runs one job, or several under `jobs`" -}}
{{- end -}}
{{- if not (or .Values.job .Values.jobs) -}}
{{- fail "`job` is empty: give the job file with --set-file job=job.yaml, or as text below `job: |` in a file passed with -f" -}}
{{- end -}}
{{- if and .Values.jobs (gt (int .Values.executors.count) 0) -}}
{{- fail "executors are for a release of one job: several would wait for them at one address" -}}
{{- end -}}
{{- if and .Values.jobs .Values.savepoint -}}
{{- fail "a savepoint is one job's: give that job a release of its own to begin with it" -}}
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

{{- /* The value that a job file at a path is given by. */ -}}
{{- define "rowkind.valued" -}}
{{- . | trimSuffix ".yaml" | replace "/" "." -}}
{{- end -}}

{{- /* A job as a mapping, to look something up. What its references stand for is known only where it runs, but for what
they stand for where nobody says anything. */ -}}
{{- define "rowkind.said" -}}
{{- $name := include "rowkind.valued" (index . 0) -}}
{{- $text := index . 1 -}}
{{- if not (kindIs "string" $text) -}}
{{- fail (printf "`%s` has to be text: --set-file %s=job.yaml, or `%s: |` and the job below it. Helm sorts the keys of a mapping, and with them the columns of tables" $name $name $name) -}}
{{- end -}}
{{- $said := regexReplaceAll "\\$\\{[^}]*:-([^}]*)\\}" $text "${1}" -}}
{{- $said = regexReplaceAll "\\$\\{[^}]*\\}" $said "a-reference" | fromYaml -}}
{{- with $said.Error -}}
{{- fail (printf "`%s` is no job file: %s" $name .) -}}
{{- end -}}
{{- toYaml $said -}}
{{- end -}}

{{- /* The job files by their paths, each with a checkpoint on the volume if it names none. */ -}}
{{- define "rowkind.jobs" -}}
{{- $files := dict -}}
{{- range $path, $text := include "rowkind.texts" . | fromJson -}}
{{- $name := include "rowkind.valued" $path -}}
{{- $said := include "rowkind.said" (list $path $text) | fromYaml -}}
{{- if and (not $.Values.persistence.enabled) (not (regexMatch "^(a-reference|s3a?://)" (toString $said.checkpoint))) -}}
{{- fail "persistence.enabled is false, so the checkpoint would be lost with the pod: say in the job where else it lies, such as `checkpoint: s3a://bucket/jobs`" -}}
{{- end -}}
{{- if not $said.checkpoint -}}
{{- if hasPrefix "{" (trim $text) -}}
{{- fail (printf "`%s` does not say where its checkpoint lies: add `checkpoint: /var/lib/rowkind/checkpoint`" $name) -}}
{{- end -}}
{{- $text = printf "%s\ncheckpoint: /var/lib/rowkind/checkpoint\n" ($text | trimSuffix "\n") -}}
{{- end -}}
{{- $_ := set $files $path $text -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{- /* How the port speaks: the job says so, of several the first. */ -}}
{{- define "rowkind.scheme" -}}
{{- $texts := include "rowkind.texts" . | fromJson -}}
{{- $first := $texts | keys | sortAlpha | first -}}
{{- $said := include "rowkind.said" (list $first (get $texts $first)) | fromYaml -}}
{{- hasKey ($said.status | default dict) "certificate" | ternary "HTTPS" "HTTP" -}}
{{- end -}}
