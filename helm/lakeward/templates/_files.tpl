{{/* Data of the ConfigMaps: the files of the chart, and the configuration of the pipeline. */}}
{{- define "lakeward.chartFiles" -}}
chart.yaml: |
  {{- include "lakeward.chartConfig" . | nindent 2 }}
{{- if eq .Values.mode "kubernetes" }}
executor-pod.yaml: |
  {{- include "lakeward.executorPod" . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The pipeline's configuration as an object. Takes root, optionally suffix and annotations. */}}
{{- define "lakeward.configObject" -}}
{{- $values := .root.Values -}}
apiVersion: v1
kind: {{ $values.configKind }}
metadata:
  {{- $name := printf "%s-config%s" (include "lakeward.fullname" .root) (default "" .suffix) }}
  {{- include "lakeward.metadata" (dict "root" .root "component" "driver" "name" $name "annotations" .annotations) | nindent 2 }}
{{- if eq $values.configKind "Secret" }}
type: Opaque
stringData:
{{- else }}
data:
{{- end }}
  pipeline.yaml: |
    {{- include "lakeward.pipelineConfig" .root | nindent 4 }}
{{- end }}

{{/* Pod template of executors; Spark adds name, image, resources, arguments and its own volumes. */}}
{{- define "lakeward.executorPod" -}}
{{- $x := .Values.executors -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "lakeward.podLabels" (dict "root" . "component" "executor") | nindent 4 }}
    {{- with $x.podLabels }}
    {{- include "lakeward.given" (dict "root" $ "value" .) | nindent 4 }}
    {{- end }}
  {{- with merge (dict) $x.podAnnotations .Values.commonAnnotations }}
  annotations:
    {{- include "lakeward.given" (dict "root" $ "value" .) | nindent 4 }}
  {{- end }}
spec:
  {{- include "lakeward.podSpec" (dict "root" .) | nindent 2 }}
  serviceAccountName: {{ include "lakeward.executorAccount" . }}
  {{- with include "lakeward.scheduling" (dict "root" . "from" $x) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "lakeward.list" (dict "root" . "key" "initContainers" "value" $x.initContainers) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: executor
      {{- with include "lakeward.containerSecurity" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "lakeward.list" (dict "root" . "key" "env" "value" $x.extraEnv) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "lakeward.list" (dict "root" . "key" "envFrom" "value" $x.extraEnvFrom) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if include "lakeward.warehouseVolume" . }}
        - name: warehouse
          mountPath: {{ .Values.warehouse.mountPath }}
        {{- end }}
        {{- with include "lakeward.secretMounts" (dict "root" . "executor" true) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $x.extraVolumeMounts }}
        {{- include "lakeward.given" (dict "root" $ "value" .) | nindent 8 }}
        {{- end }}
    {{- with $x.sidecars }}
    {{- include "lakeward.given" (dict "root" $ "value" .) | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "lakeward.scratchVolume" (dict "root" . "sizeLimit" $x.scratch.sizeLimit) | nindent 4 }}
    {{- if include "lakeward.warehouseVolume" . }}
    - name: warehouse
      persistentVolumeClaim:
        claimName: {{ include "lakeward.warehouseClaim" . }}
    {{- end }}
    {{- with include "lakeward.secretVolumes" (dict "root" . "executor" true) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $x.extraVolumes }}
    {{- include "lakeward.given" (dict "root" $ "value" .) | nindent 4 }}
    {{- end }}
{{- end }}
