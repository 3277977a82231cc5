{{/* The configuration: the settings of the chart, then those of the pipeline, which take precedence. */}}

{{/* A setting of `config` as JSON, in any spelling (`a: {b.c: 1}`, `a.b.c: 1`); empty if it is not set.
     Takes map and key. */}}
{{- define "lakeward.setting" -}}
{{- $found := "" -}}
{{- $key := .key -}}
{{- range $name, $value := .map -}}
{{- if eq $name $key -}}
{{- if not (kindIs "invalid" $value) }}{{ $found = toJson $value }}{{ end -}}
{{- else if and (hasPrefix (printf "%s." $name) $key) (kindIs "map" $value) -}}
{{- $inner := include "lakeward.setting" (dict "map" $value "key" (trimPrefix (printf "%s." $name) $key)) -}}
{{- if $inner }}{{ $found = $inner }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end }}

{{/* The setting as text. */}}
{{- define "lakeward.textSetting" -}}
{{- $found := include "lakeward.setting" . -}}
{{- if $found }}{{ fromJson (printf "{\"v\":%s}" $found) | dig "v" "" | toString }}{{ end -}}
{{- end }}

{{- define "lakeward.warehouse" -}}
{{- $own := include "lakeward.textSetting" (dict "map" .Values.config "key" "sink.warehouse") -}}
{{- coalesce $own .Values.warehouse.url .Values.warehouse.mountPath -}}
{{- end }}

{{/* `yes` if the warehouse is on a volume, empty if it is in an object store. */}}
{{- define "lakeward.warehouseVolume" -}}
{{- if not (contains "://" (include "lakeward.warehouse" .)) }}yes{{ end -}}
{{- end }}

{{- define "lakeward.existingConfig" -}}
{{- if or .Values.existingConfigMap .Values.existingConfigSecret }}yes{{ end -}}
{{- end }}

{{- define "lakeward.secretPath" -}}/run/secrets/lakeward/{{ . }}{{- end }}

{{- define "lakeward.kafkaProperties" -}}
{{- $sasl := .Values.kafka.security.existingSecret -}}
{{- $tls := .Values.kafka.tls -}}
{{- $secure := or $tls.existingCASecret $tls.existingClientSecret -}}
{{- $protocol := ternary (ternary "SASL_SSL" "SASL_PLAINTEXT" (not (empty $secure))) (ternary "SSL" "" (not (empty $secure))) (not (empty $sasl)) -}}
{{- with default $protocol .Values.kafka.security.protocol }}
security.protocol: {{ . }}
{{- end }}
{{- if $sasl }}
sasl.mechanism: {{ .Values.kafka.security.saslMechanism }}
sasl.username: {{ printf "${file:%s/%s}" (include "lakeward.secretPath" "kafka-sasl") .Values.kafka.security.existingSecretKeys.username | quote }}
sasl.password: {{ printf "${file:%s/%s}" (include "lakeward.secretPath" "kafka-sasl") .Values.kafka.security.existingSecretKeys.password | quote }}
{{- end }}
{{- if $tls.existingCASecret }}
ssl.ca.location: {{ include "lakeward.secretPath" "kafka-ca" }}/{{ $tls.caKey }}
{{- end }}
{{- if $tls.existingClientSecret }}
ssl.certificate.location: {{ include "lakeward.secretPath" "kafka-client" }}/{{ $tls.certKey }}
ssl.key.location: {{ include "lakeward.secretPath" "kafka-client" }}/{{ $tls.keyKey }}
{{- if $tls.keyPasswordKey }}
ssl.key.password: {{ printf "${file:%s/%s}" (include "lakeward.secretPath" "kafka-client") $tls.keyPasswordKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lakeward.storeOptions" -}}
{{- with .Values.s3.endpoint }}
s3.endpoint: {{ . | quote }}
{{- end }}
{{- with .Values.s3.region }}
s3.region: {{ . | quote }}
{{- end }}
{{- if .Values.s3.pathStyleAccess }}
s3.path-style-access: "true"
{{- end }}
{{- if .Values.s3.existingSecret }}
{{- $path := include "lakeward.secretPath" "s3" }}
s3.access-key: {{ printf "${file:%s/%s}" $path .Values.s3.existingSecretKeys.accessKey | quote }}
s3.secret-key: {{ printf "${file:%s/%s}" $path .Values.s3.existingSecretKeys.secretKey | quote }}
{{- with .Values.s3.existingSecretKeys.sessionToken }}
s3.session-token: {{ printf "${file:%s/%s}" $path . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Spark properties in addition to those that the daemon derives from the environment of the pod. */}}
{{- define "lakeward.sparkConf" -}}
{{- with .Values.heap }}
spark.driver.memory: {{ . }}
{{- end }}
{{- if .Values.sparkUi.enabled }}
spark.ui.enabled: "true"
spark.ui.port: "4040"
{{- end }}
{{- if eq .Values.mode "kubernetes" }}
{{- $x := .Values.executors }}
spark.executor.instances: {{ $x.instances | quote }}
spark.executor.cores: {{ $x.cores | quote }}
spark.executor.memory: {{ $x.memory }}
spark.executor.memoryOverheadFactor: {{ $x.memoryOverheadFactor | quote }}
spark.kubernetes.executor.request.cores: {{ default (toString $x.cores) $x.cpuRequest | quote }}
{{- with $x.cpuLimit }}
spark.kubernetes.executor.limit.cores: {{ . | quote }}
{{- end }}
spark.kubernetes.executor.terminationGracePeriodSeconds: {{ printf "%ds" (int $x.terminationGracePeriodSeconds) }}
spark.kubernetes.allocation.batch.size: {{ $x.allocationBatchSize | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
# fixed ports, which the NetworkPolicies allow
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.blockManager.port: "7079"
spark.dynamicAllocation.enabled: "false"
{{- if $x.encryption }}
spark.authenticate: "true"
spark.network.crypto.enabled: "true"
{{- end }}
{{- end }}
{{- end }}

{{/* The settings of the chart. */}}
{{- define "lakeward.chartConfig" -}}
# Written by the chart. The configuration of the pipeline is read after it and takes precedence.
metrics:
  host: 0.0.0.0
  port: {{ .Values.metrics.port }}
{{- with .Values.control.existingSecret }}
control:
  token: {{ printf "${file:%s/%s}" (include "lakeward.secretPath" "control") $.Values.control.key | quote }}
{{- end }}
log:
  format: json
pipeline:
  checkpoint: /var/lib/lakeward/checkpoint
  # the batch in progress is aborted before the pod is killed
  {{- $grace := int .Values.terminationGracePeriodSeconds }}
  stop.timeout: {{ max (sub $grace 30) (div $grace 2) }}s
sink:
  warehouse: {{ include "lakeward.warehouse" . | quote }}
  {{- with include "lakeward.storeOptions" . | trim }}
  options:
    {{- . | nindent 4 }}
  {{- end }}
{{- $properties := include "lakeward.kafkaProperties" . | trim }}
{{- $registry := .Values.registry }}
{{- if or $properties $registry.existingSecret $registry.tls.existingCASecret }}
source:
  {{- with $properties }}
  properties:
    {{- . | nindent 4 }}
  {{- end }}
  {{- if $registry.existingSecret }}
  {{- $path := include "lakeward.secretPath" "registry" }}
  {{- if $registry.existingSecretKeys.token }}
  schema.registry.bearer.token: {{ printf "${file:%s/%s}" $path $registry.existingSecretKeys.token | quote }}
  {{- else }}
  schema.registry.basic.auth: {{ printf "${file:%s/%s}:${file:%s/%s}" $path $registry.existingSecretKeys.username $path $registry.existingSecretKeys.password | quote }}
  {{- end }}
  {{- end }}
  {{- if $registry.tls.existingCASecret }}
  schema.registry.ssl.ca.location: {{ include "lakeward.secretPath" "registry-ca" }}/{{ $registry.tls.caKey }}
  {{- end }}
{{- end }}
{{- $conf := include "lakeward.sparkConf" . | trim }}
{{- if or $conf (eq .Values.mode "kubernetes") }}
spark:
  {{- if eq .Values.mode "kubernetes" }}
  master: k8s://https://kubernetes.default.svc
  {{- end }}
  {{- with $conf }}
  conf:
    {{- . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The configuration of the pipeline, as the mounted file. */}}
{{- define "lakeward.pipelineConfig" -}}
{{- toYaml .Values.config -}}
{{- end }}
