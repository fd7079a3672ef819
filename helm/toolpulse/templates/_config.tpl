{{/*
The server's settings. What the rest of the chart depends on goes as flags, which neither the image's environment nor
extraEnvFrom can change; all else goes into the file.
*/}}

{{- define "toolpulse.dataDir" -}}/data{{- end }}
{{- define "toolpulse.configDir" -}}/etc/toolpulse/config{{- end }}
{{- define "toolpulse.manifestDir" -}}/etc/toolpulse/manifest{{- end }}
{{- define "toolpulse.secretsDir" -}}/etc/toolpulse/secrets{{- end }}

{{/* Whether there is a manifest: "true" or nothing. */}}
{{- define "toolpulse.hasManifest" -}}
{{- if or .Values.tools .Values.toolsFrom.configMap }}true{{- end }}
{{- end }}

{{/* The manifest: a text as it is; a list as JSON, since YAML would turn 1000000 into 1e+06. */}}
{{- define "toolpulse.manifest" -}}
{{- if kindIs "string" .Values.tools }}
{{- .Values.tools }}
{{- else }}
{{- dict "tools" .Values.tools | toPrettyJson }}
{{- end }}
{{- end }}

{{/* Which flags the chart sets: the setting's name in the file (--config has none), and what to set instead. */}}
{{- define "toolpulse.owned" -}}
config: config
listen: server.address and server.grpc.port
admin_listen: server.address and server.admin.port
store: store.type
data_dir: store.sqlite
manifest: tools or toolsFrom
secrets_dir: probing.secrets
drain_lame_duck: shutdown.lameDuck
drain_spread: shutdown.spread
drain_grace: shutdown.grace
{{- if .Values.allowedTools.enabled }}
allowlist_var: allowedTools
{{- end }}
{{- end }}

{{- define "toolpulse.args" -}}
- serve
- {{ printf "--config=%s/toolpulse.yaml" (include "toolpulse.configDir" .) | quote }}
- {{ printf "--listen=%s:%d" .Values.server.address (int .Values.server.grpc.port) | quote }}
- {{ printf "--admin-listen=%s:%d" .Values.server.address (int .Values.server.admin.port) | quote }}
- {{ printf "--store=%s" .Values.store.type | quote }}
{{- if eq .Values.store.type "sqlite" }}
- {{ printf "--data-dir=%s" (include "toolpulse.dataDir" .) | quote }}
{{- end }}
{{- if include "toolpulse.hasManifest" . }}
- {{ printf "--manifest=%s/tools.yaml" (include "toolpulse.manifestDir" .) | quote }}
{{- end }}
{{- if .Values.probing.secrets }}
- {{ printf "--secrets-dir=%s" (include "toolpulse.secretsDir" .) | quote }}
{{- end }}
{{- if .Values.allowedTools.enabled }}
- "--allowlist-var=ALLOWED_TOOLS"
{{- end }}
- {{ printf "--drain-lame-duck=%s" .Values.shutdown.lameDuck | quote }}
- {{ printf "--drain-spread=%s" .Values.shutdown.spread | quote }}
- {{ printf "--drain-grace=%s" .Values.shutdown.grace | quote }}
{{- with .Values.extraArgs }}
{{ include "toolpulse.tpl" (dict "root" $ "value" .) }}
{{- end }}
{{- end }}

{{/* A list, or nothing. */}}
{{- define "toolpulse.env" -}}
{{- if .Values.allowedTools.enabled }}
- name: ALLOWED_TOOLS
  value: {{ join "," .Values.allowedTools.names | quote }}
{{- if .Values.allowedTools.strict }}
- name: CI
  value: "true"
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ include "toolpulse.tpl" (dict "root" $ "value" .) }}
{{- end }}
{{- end }}

{{/*
The file of settings. One setting a line, each written as JSON, which keeps numbers as they are. Plaintext inside the cluster is
what the chart's Services, probes and test speak; `config` can take it back.
*/}}
{{- define "toolpulse.config" -}}
{{- $probing := .Values.probing }}
{{- $own := dict
  "allow_plaintext" true
  "log" .Values.log.level
  "log_format" .Values.log.format
  "probe_interval" $probing.interval
  "probe_egress" $probing.egress
  "probe_insecure_tls" $probing.insecureTls
}}
{{- range $key, $value := dict "probe_timeout" $probing.timeout "probe_ttl" $probing.ttl "probe_grace" $probing.grace "probe_canary" $probing.canary }}
{{- if $value }}
{{- $_ := set $own $key $value }}
{{- end }}
{{- end }}
{{- with $probing.allow }}
{{- $_ := set $own "probe_allow" (join "," .) }}
{{- end }}
{{- with $probing.deny }}
{{- $_ := set $own "probe_deny" (join "," .) }}
{{- end }}
{{- if .Values.allowedTools.enabled }}
{{- $_ := set $own "strict_wait" .Values.allowedTools.wait }}
{{- end }}
{{- range $key, $value := mergeOverwrite $own (deepCopy .Values.config) }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether probes go to public addresses only, as the server is told in the end: "true" or nothing. */}}
{{- define "toolpulse.probesPublicOnly" -}}
{{- $config := include "toolpulse.config" . | fromYaml }}
{{- if and (eq $config.probe_egress "strict") (not $config.probe_allow) }}true{{- end }}
{{- end }}
