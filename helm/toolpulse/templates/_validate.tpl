{{/*
What the schema can't say: values that contradict each other. All that is wrong is told at once.
*/}}

{{- define "toolpulse.validate" -}}
{{- $errors := list }}
{{- range list "replicas" "names" "settings" "windows" "pod" "network" }}
{{- range (include (printf "toolpulse.validate.%s" .) $ | fromYamlArray) }}
{{- $errors = append $errors . }}
{{- end }}
{{- end }}
{{- if $errors }}
{{- fail (printf "\ntoolpulse: these values can't be used:\n- %s\n" (join "\n- " $errors)) }}
{{- end }}
{{- end }}

{{- define "toolpulse.validate.replicas" -}}
{{- $errors := list }}
{{- $why := printf "store.type %q keeps the registry in one process, and two would be two registries" .Values.store.type }}
{{- if gt (int .Values.replicaCount) 1 }}
{{- $errors = append $errors (printf "replicaCount is %d, and %s: set replicaCount to 1" (int .Values.replicaCount) $why) }}
{{- end }}
{{- if hasKey .Values "autoscaling" }}
{{- $errors = append $errors (printf "autoscaling (%s) would change replicaCount, and %s: remove autoscaling" (keys (default (dict) .Values.autoscaling) | sortAlpha | join ", ") $why) }}
{{- end }}
{{- with .Values.podDisruptionBudget }}
{{- if hasKey . "minAvailable" }}
{{- $errors = append $errors (printf "podDisruptionBudget.minAvailable (%v) with replicaCount %d would let no node be drained: use podDisruptionBudget.maxUnavailable" .minAvailable (int $.Values.replicaCount)) }}
{{- end }}
{{- if has (toString .maxUnavailable) (list "0" "0%") }}
{{- $errors = append $errors "podDisruptionBudget.maxUnavailable of 0 would let no node be drained: use 1, or set podDisruptionBudget.enabled to false" }}
{{- end }}
{{- end }}
{{- $sqlite := .Values.store.sqlite }}
{{- if and (eq .Values.store.type "memory") $sqlite.existingClaim }}
{{- $errors = append $errors "store.sqlite.existingClaim is set, and store.type \"memory\" uses no volume: set store.type to sqlite, or remove the claim" }}
{{- end }}
{{- toYaml $errors }}
{{- end }}

{{/* Labels by which pods are selected and charts are told apart are ours alone. */}}
{{- define "toolpulse.validate.names" -}}
{{- $errors := list }}
{{- $maps := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "store.sqlite.labels" .Values.store.sqlite.labels }}
{{- range list "service" "headlessService" "grpcRoute" "ingress" "networkPolicy" "podDisruptionBudget" "serviceAccount" "tests" }}
{{- $_ := set $maps (printf "%s.labels" .) (get $.Values .).labels }}
{{- end }}
{{- range $key, $labels := $maps }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- if hasKey (default (dict) $labels) . }}
{{- $errors = append $errors (printf "%s sets %s, which is the chart's own: use another label, or nameOverride" $key .) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $errors }}
{{- end }}

{{- define "toolpulse.validate.settings" -}}
{{- $errors := list }}
{{- $owned := include "toolpulse.owned" . | fromYaml }}
{{- range $setting, $instead := $owned }}
{{- if hasKey $.Values.config $setting }}
{{- $errors = append $errors (printf "config.%s: the chart sets this itself, by %s" $setting $instead) }}
{{- end }}
{{- $flag := printf "--%s" ($setting | replace "_" "-") }}
{{- range $.Values.extraArgs }}
{{- if or (eq . $flag) (hasPrefix (printf "%s=" $flag) .) }}
{{- $errors = append $errors (printf "extraArgs has %s: the chart sets this itself, by %s" $flag $instead) }}
{{- end }}
{{- end }}
{{- $variable := printf "TOOLPULSE_%s" ($setting | upper) }}
{{- range $.Values.extraEnv }}
{{- if eq (toString .name) $variable }}
{{- $errors = append $errors (printf "extraEnv has %s: the chart sets this itself, by %s" $variable $instead) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.allowedTools }}
{{- if and .enabled (not .names) }}
{{- $errors = append $errors "allowedTools.enabled is true and allowedTools.names is empty: name the tools, or set allowedTools.enabled to false for all tools" }}
{{- end }}
{{- /* Linux hands no longer one to a process. */}}
{{- if gt (len (join "," .names)) 120000 }}
{{- $errors = append $errors (printf "allowedTools.names are %d bytes, and an environment variable holds 120000: use a policy instead" (len (join "," .names))) }}
{{- end }}
{{- if and .names (not .enabled) }}
{{- $errors = append $errors "allowedTools.names is set and allowedTools.enabled is false, so that all tools would be visible: set allowedTools.enabled to true, or remove the names" }}
{{- end }}
{{- if and .strict (not .enabled) }}
{{- $errors = append $errors "allowedTools.strict needs allowedTools.enabled" }}
{{- end }}
{{- if and (ne (include "toolpulse.milliseconds" .wait) "0") (not (and .enabled .strict)) }}
{{- $errors = append $errors "allowedTools.wait needs allowedTools.enabled and allowedTools.strict" }}
{{- end }}
{{- end }}
{{- range $key, $value := dict "allowedTools.wait" .Values.allowedTools.wait "shutdown.lameDuck" .Values.shutdown.lameDuck "shutdown.spread" .Values.shutdown.spread "shutdown.grace" .Values.shutdown.grace }}
{{- if gt (include "toolpulse.milliseconds" $value | atoi) 3600000 }}
{{- $errors = append $errors (printf "%s is %s: the server takes at most 1h" $key $value) }}
{{- end }}
{{- end }}
{{- if and .Values.tools .Values.toolsFrom.configMap }}
{{- $errors = append $errors "tools and toolsFrom.configMap are both set: a server has one manifest" }}
{{- end }}
{{- if gt (len (include "toolpulse.manifest" .)) 1000000 }}
{{- $errors = append $errors (printf "tools are %d bytes, and a ConfigMap holds 1 MiB: register them over the API instead" (len (include "toolpulse.manifest" .))) }}
{{- end }}
{{- toYaml $errors }}
{{- end }}

{{/* The server refuses windows that end before the next result can be there: better told here than by a pod that does not start. */}}
{{- define "toolpulse.validate.windows" -}}
{{- $errors := list }}
{{- $config := include "toolpulse.config" . | fromYaml }}
{{- $interval := include "toolpulse.milliseconds" $config.probe_interval | atoi }}
{{- if or (lt $interval 1000) (gt $interval 3600000) }}
{{- $errors = append $errors (printf "probing.interval is %s: it must be 1s to 1h" $config.probe_interval) }}
{{- end }}
{{- $timeout := min 3000 (div $interval 2) }}
{{- with $config.probe_timeout }}
{{- $timeout = include "toolpulse.milliseconds" . | atoi }}
{{- end }}
{{- $least := add (div (mul $interval 105) 100) $timeout }}
{{- range $key, $value := dict "ttl" $config.probe_ttl "grace" $config.probe_grace }}
{{- $window := max 30000 (mul 3 $interval) }}
{{- with $value }}
{{- $window = include "toolpulse.milliseconds" . | atoi }}
{{- end }}
{{- if le (int $window) (int $least) }}
{{- $errors = append $errors (printf "probing.%s is %dms: it must be more than 1.05 x probing.interval + probing.timeout, which is %dms" $key (int $window) (int $least)) }}
{{- end }}
{{- end }}
{{- toYaml $errors }}
{{- end }}

{{/* What is a list for Kubernetes and a map by name for its server-side apply: a name twice breaks every later upgrade. */}}
{{- define "toolpulse.validate.pod" -}}
{{- $errors := list }}
{{- $lists := dict
  "extraEnv: the variable" (dict "key" "name" "items" (include "toolpulse.env" . | fromYamlArray))
  "extraVolumes: the volume" (dict "key" "name" "items" (concat (include "toolpulse.volumes" . | fromYamlArray) (ternary (list (dict "name" "data")) list (and (eq .Values.store.type "sqlite") (not .Values.store.sqlite.existingClaim)))))
  "extraVolumeMounts: the path" (dict "key" "mountPath" "items" (include "toolpulse.volumeMounts" . | fromYamlArray))
  "extraContainers and initContainers: the container" (dict "key" "name" "items" (concat (list (dict "name" "toolpulse")) (default (list) .Values.extraContainers) (default (list) .Values.initContainers)))
}}
{{- range $what, $list := $lists }}
{{- $seen := dict }}
{{- range $list.items }}
{{- if not (kindIs "map" .) }}
{{- $errors = append $errors (printf "%s: %v is no map" $what .) }}
{{- else if not (get . $list.key) }}
{{- $errors = append $errors (printf "%s %v has no %s" $what . $list.key) }}
{{- else }}
{{- $name := get . $list.key | toString }}
{{- if and (hasKey $seen $name) (eq (get $seen $name) 1) }}
{{- $errors = append $errors (printf "%s %s is there twice" $what $name) }}
{{- end }}
{{- $_ := set $seen $name (add1 (default 0 (get $seen $name)) | int) }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq (int .Values.server.grpc.port) (int .Values.server.admin.port) }}
{{- $errors = append $errors (printf "server.grpc.port and server.admin.port are both %d" (int .Values.server.grpc.port)) }}
{{- end }}
{{- toYaml $errors }}
{{- end }}

{{- define "toolpulse.validate.network" -}}
{{- $errors := list }}
{{- with .Values.service }}
{{- if and (eq .type "ClusterIP") (not (kindIs "invalid" .nodePort)) }}
{{- $errors = append $errors "service.nodePort needs service.type NodePort or LoadBalancer" }}
{{- end }}
{{- if and (eq .type "ClusterIP") .externalTrafficPolicy }}
{{- $errors = append $errors "service.externalTrafficPolicy needs service.type NodePort or LoadBalancer" }}
{{- end }}
{{- if and (ne .type "LoadBalancer") (or .loadBalancerClass .loadBalancerSourceRanges) }}
{{- $errors = append $errors "service.loadBalancerClass and service.loadBalancerSourceRanges need service.type LoadBalancer" }}
{{- end }}
{{- end }}
{{- if and .Values.grpcRoute.enabled (not .Values.grpcRoute.parentRefs) }}
{{- $errors = append $errors "grpcRoute.enabled needs grpcRoute.parentRefs: the gateways that the route belongs to" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- $errors = append $errors "ingress.enabled needs ingress.hosts: the names under which the API is reached" }}
{{- end }}
{{- toYaml $errors }}
{{- end }}
