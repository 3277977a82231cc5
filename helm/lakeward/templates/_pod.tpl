{{/* Shared by all pods of the release. */}}

{{/* The Secrets to mount, as a YAML list of name, secret, files (whether processes, executors included, read it as files). */}}
{{- define "lakeward.secrets" -}}
{{- with .Values.kafka.security.existingSecret }}
- {name: kafka-sasl, secret: {{ . | quote }}, files: false}
{{- end }}
{{- with .Values.kafka.tls.existingCASecret }}
- {name: kafka-ca, secret: {{ . | quote }}, files: true}
{{- end }}
{{- with .Values.kafka.tls.existingClientSecret }}
- {name: kafka-client, secret: {{ . | quote }}, files: true}
{{- end }}
{{- with .Values.registry.existingSecret }}
- {name: registry, secret: {{ . | quote }}, files: false}
{{- end }}
{{- with .Values.registry.tls.existingCASecret }}
- {name: registry-ca, secret: {{ . | quote }}, files: true}
{{- end }}
{{- with .Values.s3.existingSecret }}
- {name: s3, secret: {{ . | quote }}, files: false}
{{- end }}
{{- with .Values.control.existingSecret }}
- {name: control, secret: {{ . | quote }}, files: false}
{{- end }}
{{- range .Values.extraSecretMounts }}
- {name: {{ .name | quote }}, secret: {{ .secretName | quote }}, files: true}
{{- end }}
{{- end }}

{{/* Takes root, and executor: whether only the Secrets that executors read. */}}
{{- define "lakeward.secretVolumes" -}}
{{- range include "lakeward.secrets" .root | fromYamlArray }}
{{- if or .files (not $.executor) }}
- name: secret-{{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: {{ include "lakeward.fileMode" $.root }}
{{- end }}
{{- end }}
{{- end }}

{{/* Mode of Secret files: they belong to root and the group of the pod; without a group every user must be able to read them. */}}
{{- define "lakeward.fileMode" -}}
{{- if hasKey (default dict .Values.podSecurityContext) "fsGroup" }}0440{{ else }}0444{{ end -}}
{{- end }}

{{- define "lakeward.secretMounts" -}}
{{- range include "lakeward.secrets" .root | fromYamlArray }}
{{- if or .files (not $.executor) }}
- name: secret-{{ .name }}
  mountPath: {{ include "lakeward.secretPath" .name }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{/* The directory with the configuration. Takes root, and suffix: of the names of the release's own ConfigMaps. */}}
{{- define "lakeward.configVolume" -}}
{{- $values := .root.Values -}}
{{- $name := include "lakeward.fullname" .root -}}
- name: config
  projected:
    defaultMode: {{ include "lakeward.fileMode" .root }}
    sources:
      - configMap:
          name: {{ $name }}-chart{{ .suffix }}
      {{- if $values.existingConfigMap }}
      - configMap:
          name: {{ $values.existingConfigMap }}
          items:
            - {key: {{ $values.existingConfigKey | quote }}, path: pipeline.yaml}
      {{- else if $values.existingConfigSecret }}
      - secret:
          name: {{ $values.existingConfigSecret }}
          items:
            - {key: {{ $values.existingConfigKey | quote }}, path: pipeline.yaml}
      {{- else if eq $values.configKind "Secret" }}
      - secret:
          name: {{ $name }}-config{{ .suffix }}
      {{- else }}
      - configMap:
          name: {{ $name }}-config{{ .suffix }}
      {{- end }}
{{- end }}

{{- define "lakeward.configMounts" -}}
- name: config
  mountPath: /etc/lakeward
  readOnly: true
{{- end }}

{{- define "lakeward.configArguments" -}}
- -c
- /etc/lakeward/chart.yaml
- -c
- /etc/lakeward/pipeline.yaml
{{- end }}

{{/* `/tmp`. Takes root, sizeLimit, and volume: another source. */}}
{{- define "lakeward.scratchVolume" -}}
- name: tmp
  {{- if .volume }}
  {{- include "lakeward.given" (dict "root" .root "value" .volume) | nindent 2 }}
  {{- else if .sizeLimit }}
  emptyDir:
    sizeLimit: {{ .sizeLimit }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{- define "lakeward.warehouseClaim" -}}
{{- default (printf "%s-warehouse" (include "lakeward.fullname" .)) .Values.warehouse.persistence.existingClaim -}}
{{- end }}

{{- define "lakeward.stateClaim" -}}
{{- default (printf "%s-state" (include "lakeward.fullname" .)) .Values.state.persistence.existingClaim -}}
{{- end }}

{{/* Passed-through fields of a pod's spec. Takes root and from: the map of values that has them. */}}
{{- define "lakeward.scheduling" -}}
{{- $root := .root -}}
{{- $from := .from -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "hostAliases" "dnsConfig" }}
{{- if and (hasKey $from $key) (get $from $key) }}
{{ $key }}:
  {{- include "lakeward.given" (dict "root" $root "value" (get $from $key)) | nindent 2 }}
{{- end }}
{{- end }}
{{- range $key := list "priorityClassName" "runtimeClassName" "schedulerName" "dnsPolicy" }}
{{- if and (hasKey $from $key) (get $from $key) }}
{{ $key }}: {{ get $from $key | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* A list of values under a key, if there is one. Takes root, key and value. */}}
{{- define "lakeward.list" -}}
{{- if .value }}
{{ .key }}:
  {{- include "lakeward.given" (dict "root" .root "value" .value) | nindent 2 }}
{{- end }}
{{- end }}

{{/* Beginning of every pod spec. Takes root and token: whether the pod uses the Kubernetes API. */}}
{{- define "lakeward.podSpec" -}}
automountServiceAccountToken: {{ default false .token }}
enableServiceLinks: false
{{- with include "lakeward.pullSecrets" .root | trim }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- with .root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lakeward.containerSecurity" -}}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
