{{- /* Spark's settings if tasks run in executor pods. */ -}}
{{- define "rowkind.spark" -}}
{{- $name := include "rowkind.name" . -}}
{{- $settings := dict
  "spark.driver.host" (printf "%s.%s.svc" $name .Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.executor.instances" .Values.executors.count
  "spark.executor.cores" .Values.executors.cores
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.memoryOverhead
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "rowkind.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.driver.pod.name" (printf "%s-0" $name)
  "spark.kubernetes.executor.podTemplateFile" "/etc/rowkind/spark/executor.yaml"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (include "rowkind.serviceAccount" .)
  "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path" "/scratch"
  "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.options.sizeLimit" .Values.scratch.sizeLimit
-}}
{{- range $key, $value := merge (dict) .Values.spark $settings -}}
{{ $key }} {{ $value }}
{{ end -}}
{{- end -}}

{{- /* The template of executor pods. */ -}}
{{- define "rowkind.executor" -}}
metadata:
  labels:
    {{- merge (include "rowkind.executorSelector" . | fromYaml) (dict "app.kubernetes.io/component" "executor") .Values.commonLabels | toYaml | nindent 4 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: executor
      {{- with include "rowkind.environment" (list .Values list) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- include "rowkind.mounts" . | nindent 8 }}
  volumes:
    {{- include "rowkind.volumes" . | nindent 4 }}
    {{- if .Values.persistence.enabled }}
    {{- include "rowkind.claimed" . | nindent 4 }}
    {{- end }}
  {{- with include "rowkind.scheduling" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
