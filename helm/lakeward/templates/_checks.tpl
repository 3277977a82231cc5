{{/* Checks that the JSON schema cannot express. Each message names the value and what to do. */}}

{{- define "lakeward.check" -}}
{{- $given := not (empty .Values.config) -}}
{{- $existing := include "lakeward.existingConfig" . -}}
{{- if and $given $existing }}{{ fail "set either `config` or an existing ConfigMap or Secret, not both" }}{{ end -}}
{{- if and .Values.existingConfigMap .Values.existingConfigSecret }}{{ fail "set only one of `existingConfigMap` and `existingConfigSecret`" }}{{ end -}}
{{- if not (or $given $existing) }}{{ fail "`config` is empty. Set it to the pipeline's configuration, such as:\n\nconfig:\n  pipeline: {name: shop}\n  source:\n    type: kafka\n    bootstrap.servers: kafka:9092\n    topics.pattern: 'shop\\..*'\n" }}{{ end -}}
{{- if $given -}}
{{- include "lakeward.checkConfig" . -}}
{{- end -}}
{{- include "lakeward.checkVolumes" . -}}
{{- include "lakeward.checkAlerts" . -}}
{{- if .Values.compaction.enabled -}}
{{- if not (or .Values.compaction.database .Values.compaction.includingTables) }}{{ fail "set the tables to compact: `compaction.database` or `compaction.includingTables`" }}{{ end -}}
{{- end -}}
{{- if .Values.catalogService.enabled -}}
{{- if and (empty .Values.catalogService.tokens.existingSecret) (not .Values.catalogService.withoutTokens) }}{{ fail "the catalog service needs tokens: set `catalogService.tokens.existingSecret`, or `catalogService.withoutTokens: true`" }}{{ end -}}
{{- if and .Values.catalogService.tokens.existingSecret .Values.catalogService.withoutTokens }}{{ fail "set only one of `catalogService.tokens.existingSecret` and `catalogService.withoutTokens`" }}{{ end -}}
{{- end -}}
{{- if and (empty .Values.s3.existingSecret) (ne .Values.s3.existingSecretKeys.sessionToken "") }}{{ fail "`s3.existingSecretKeys.sessionToken` needs `s3.existingSecret`" }}{{ end -}}
{{- if and (hasPrefix "SASL" .Values.kafka.security.protocol) (empty .Values.kafka.security.existingSecret) $given -}}
{{- $properties := include "lakeward.setting" (dict "map" .Values.config "key" "source.properties") -}}
{{- if not (contains "sasl" $properties) }}{{ fail (printf "`kafka.security.protocol: %s` needs `kafka.security.existingSecret` with user and password" .Values.kafka.security.protocol) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "lakeward.checkConfig" -}}
{{- $config := .Values.config -}}
{{- range list "pipeline.name" "source.type" -}}
{{- if not (include "lakeward.setting" (dict "map" $config "key" .)) }}{{ fail (printf "`config` must set `%s`" .) }}{{ end -}}
{{- end -}}
{{- range list "metrics.enabled" "metrics.port" "metrics.host" -}}
{{- if include "lakeward.setting" (dict "map" $config "key" .) }}{{ fail (printf "`config` must not set `%s`: the probes need the endpoint. Its port is the value `metrics.port`" .) }}{{ end -}}
{{- end -}}
{{- if and (include "lakeward.setting" (dict "map" $config "key" "spark.master")) (eq .Values.mode "kubernetes") }}{{ fail "`config` must not set `spark.master` in mode `kubernetes`" }}{{ end -}}
{{- $checkpoint := include "lakeward.textSetting" (dict "map" $config "key" "pipeline.checkpoint") -}}
{{- if and $checkpoint (not (hasPrefix "/var/lib/lakeward/" $checkpoint)) }}{{ fail "`pipeline.checkpoint` must be below /var/lib/lakeward, where its volume is mounted; omit it to use the default" }}{{ end -}}
{{- $warehouse := include "lakeward.warehouse" . -}}
{{- if and (not (contains "://" $warehouse)) (ne $warehouse .Values.warehouse.mountPath) (not (hasPrefix (printf "%s/" .Values.warehouse.mountPath) $warehouse)) }}{{ fail (printf "`config.sink.warehouse` is %s, the warehouse's volume is mounted at %s: omit it, or set `warehouse.mountPath`" $warehouse .Values.warehouse.mountPath) }}{{ end -}}
{{- if eq .Values.configKind "ConfigMap" -}}
{{- range $key := list "source.properties" "sink.options" "source.schema.registry" -}}
{{- $text := include "lakeward.setting" (dict "map" $config "key" $key) -}}
{{- with regexFind "\"[^\"]*(password|secret-key|session-token|basic\\.auth|bearer\\.token)\":\"[^$\"][^\"]*\"" $text -}}
{{- fail (printf "`config` has a secret in `%s` (%s) that would be stored in a ConfigMap: put it into a Secret, mount it with `extraSecretMounts` and name the file as ${file:/run/secrets/lakeward/NAME/KEY}" $key (regexFind "[^\"]+" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "lakeward.checkVolumes" -}}
{{- if and (include "lakeward.warehouseVolume" .) (empty .Values.warehouse.persistence.existingClaim) -}}
{{- if not (has "ReadWriteMany" .Values.warehouse.persistence.accessModes) -}}
{{- if eq .Values.mode "kubernetes" }}{{ fail "in mode `kubernetes` all pods write the warehouse: set `warehouse.persistence.accessModes: [ReadWriteMany]` (with a storage class that supports it), or `warehouse.url`" }}{{ end -}}
{{- if .Values.catalogService.enabled }}{{ fail "the catalog service uses the warehouse from separate pods: set `warehouse.persistence.accessModes: [ReadWriteMany]`, or `warehouse.url`" }}{{ end -}}
{{- if .Values.compaction.enabled }}{{ fail "dedicated compaction writes the warehouse from separate pods: set `warehouse.persistence.accessModes: [ReadWriteMany]`, or `warehouse.url`" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "lakeward.checkAlerts" -}}
{{- if .Values.prometheusRule.enabled -}}
{{- $known := list -}}
{{- range (include "lakeward.alertGroups" . | fromYaml).groups -}}
{{- range .rules }}{{ with .alert }}{{ $known = append $known . }}{{ end }}{{ end -}}
{{- end -}}
{{- range $name := concat (keys .Values.prometheusRule.disabled) (keys .Values.prometheusRule.thresholds) | sortAlpha -}}
{{- if not (has $name $known) }}{{ fail (printf "unknown alert `%s`. Known alerts: %s" $name (join ", " $known)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
