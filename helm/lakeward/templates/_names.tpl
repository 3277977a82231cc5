{{/* Names, labels, references. Names have at most 40 characters, so that with the suffixes of Kubernetes they stay within 63. */}}

{{- define "lakeward.short" -}}
{{- if gt (len .) 40 -}}
{{- printf "%s-%s" (. | trunc 31 | trimSuffix "-") (. | sha256sum | trunc 8) -}}
{{- else -}}
{{- . | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "lakeward.name" -}}
{{- include "lakeward.short" (default .Chart.Name .Values.nameOverride) -}}
{{- end }}

{{- define "lakeward.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- include "lakeward.short" .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- include "lakeward.short" .Release.Name -}}
{{- else -}}
{{- include "lakeward.short" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end }}

{{- define "lakeward.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{/* Selector labels: fixed for the lifetime of a release. */}}
{{- define "lakeward.selector" -}}
app.kubernetes.io/name: {{ include "lakeward.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of pods: without the version of the chart, so that a new chart version alone restarts nothing. */}}
{{- define "lakeward.podLabels" -}}
{{ include "lakeward.selector" . }}
app.kubernetes.io/version: {{ default .root.Chart.AppVersion .root.Values.image.tag | replace "+" "_" | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ tpl (toYaml .) $.root }}
{{- end }}
{{- end }}

{{- define "lakeward.labels" -}}
{{ include "lakeward.podLabels" . }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_." }}
{{- end }}

{{/* `metadata` of an object. Takes root, component, optionally: name, namespace, labels, annotations (maps). */}}
{{- define "lakeward.metadata" -}}
name: {{ default (include "lakeward.fullname" .root) .name }}
namespace: {{ default (include "lakeward.namespace" .root) .namespace }}
labels:
  {{- include "lakeward.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- tpl (toYaml .) $.root | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
{{- with $annotations }}
annotations:
  {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lakeward.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "lakeward.pullSecrets" -}}
{{- range uniq (concat .Values.global.imagePullSecrets .Values.image.pullSecrets) }}
- name: {{ . }}
{{- end }}
{{- end }}

{{- define "lakeward.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lakeward.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "lakeward.executorAccount" -}}
{{- if .Values.executors.serviceAccount.create -}}
{{- default (printf "%s-executor" (include "lakeward.fullname" .)) .Values.executors.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.executors.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* A value that may hold template expressions, as YAML. Takes root and value. */}}
{{- define "lakeward.given" -}}
{{- tpl (toYaml .value) .root -}}
{{- end }}
