{{/*
Names, labels and small tools. Names that other objects refer to are made here alone.
*/}}

{{/* The longest name of a StatefulSet: its pods carry the label controller-revision-hash, which is the name, "-" and 10 more. */}}
{{- define "toolpulse.maxName" -}}52{{- end }}

{{/* The chart's name, or what replaces it. 5 characters less than a label may have: "-test" is added to it. */}}
{{- define "toolpulse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 58 | trimSuffix "-" }}
{{- end }}

{{/*
A name that is a DNS label (RFC 1035) of at most so many characters. One that has to be changed for that gets a hash of
the whole, so that two that differ stay different. Takes name and max.
*/}}
{{- define "toolpulse.fit" -}}
{{- $max := int .max }}
{{- $clean := .name | replace "." "-" }}
{{- if or (ne $clean .name) (gt (len $clean) $max) }}
{{- $head := $clean | trunc (int (sub $max 9)) }}
{{- printf "%s-%s" (regexReplaceAll "-+$" $head "") (.name | sha256sum | trunc 8) }}
{{- else }}
{{- $clean }}
{{- end }}
{{- end }}

{{/* The name of the StatefulSet, and the stem of all others. */}}
{{- define "toolpulse.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $chart := include "toolpulse.name" . }}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) }}
{{- if regexMatch "^[0-9]" $name }}
{{- $name = printf "%s-%s" $chart $name }}
{{- end }}
{{- include "toolpulse.fit" (dict "name" $name "max" (include "toolpulse.maxName" .)) }}
{{- end }}
{{- end }}

{{/* The name of a part. Takes root and suffix. */}}
{{- define "toolpulse.componentName" -}}
{{- include "toolpulse.fit" (dict "name" (printf "%s-%s" (include "toolpulse.fullname" .root) .suffix) "max" 63) }}
{{- end }}

{{- define "toolpulse.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* What selects our pods. It must never change: a StatefulSet's selector is immutable. */}}
{{- define "toolpulse.selectorLabels" -}}
app.kubernetes.io/name: {{ include "toolpulse.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The version of the server as a label's value; never the image's tag or digest, which may not be one. */}}
{{- define "toolpulse.version" -}}
{{- regexReplaceAll "[^A-Za-z0-9_.-]" .Chart.AppVersion "_" | trunc 63 | trimAll "-_." }}
{{- end }}

{{/* A map with the templates in it expanded, as YAML. Takes root and value. */}}
{{- define "toolpulse.tpl" -}}
{{- if .value }}
{{- tpl (ternary .value (toYaml .value) (kindIs "string" .value)) .root }}
{{- end }}
{{- end }}

{{/* The same for a map that is taken apart again: where it can't be, Helm would hand on a map with the key Error. */}}
{{- define "toolpulse.map" -}}
{{- $text := include "toolpulse.tpl" . }}
{{- $map := fromYaml $text }}
{{- if hasKey $map "Error" }}
{{- fail (printf "toolpulse: after its templates were expanded this is no map of texts (%s):\n%s" $map.Error $text) }}
{{- end }}
{{- toYaml $map }}
{{- end }}

{{/* Labels of an object. Takes root and, optionally, labels (of this object) and component. */}}
{{- define "toolpulse.labels" -}}
{{- $root := .root }}
{{- $own := include "toolpulse.selectorLabels" $root | fromYaml }}
{{- if .test }}
{{- $own = include "toolpulse.testLabels" $root | fromYaml }}
{{- end }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $_ := set $own "app.kubernetes.io/version" (include "toolpulse.version" $root) }}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- $common := include "toolpulse.map" (dict "root" $root "value" $root.Values.commonLabels) | fromYaml }}
{{- $given := include "toolpulse.map" (dict "root" $root "value" .labels) | fromYaml }}
{{- toYaml (mergeOverwrite (dict) $common $given $own) }}
{{- end }}

{{/* Metadata of an object. Takes root, name and, optionally, labels, annotations (its own) and test. */}}
{{- define "toolpulse.metadata" -}}
{{- $root := .root -}}
name: {{ .name | quote }}
namespace: {{ include "toolpulse.namespace" $root | quote }}
labels:
  {{- include "toolpulse.labels" . | nindent 2 }}
{{- $common := include "toolpulse.map" (dict "root" $root "value" $root.Values.commonAnnotations) | fromYaml }}
{{- $given := include "toolpulse.map" (dict "root" $root "value" .annotations) | fromYaml }}
{{- with mergeOverwrite (dict) $common $given }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "toolpulse.serviceAccountName" -}}
{{- $name := include "toolpulse.tpl" (dict "root" . "value" .Values.serviceAccount.name) }}
{{- if $name }}
{{- $name }}
{{- else }}
{{- ternary (include "toolpulse.fullname" .) "default" .Values.serviceAccount.create }}
{{- end }}
{{- end }}

{{/* The image: a digest is the whole truth, so a tag beside it is left out. */}}
{{- define "toolpulse.image" -}}
{{- $image := .Values.image }}
{{- $name := $image.repository }}
{{- if $image.registry }}
{{- $name = printf "%s/%s" $image.registry $image.repository }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* A duration like 1m30s in milliseconds. */}}
{{- define "toolpulse.milliseconds" -}}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 }}
{{- $unit := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) (regexFind "[a-z]+" .) }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | atoi) $unit) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* How long the pod may take to end: preStop, every step of the drain, and the margin. */}}
{{- define "toolpulse.terminationGracePeriodSeconds" -}}
{{- $drain := 0 }}
{{- range list .Values.shutdown.lameDuck .Values.shutdown.spread .Values.shutdown.grace }}
{{- $drain = add $drain (include "toolpulse.milliseconds" . | atoi) }}
{{- end }}
{{- add (int .Values.shutdown.preStopSeconds) (div (add $drain 999) 1000) (int .Values.shutdown.marginSeconds) }}
{{- end }}

{{/* A security context without what OpenShift assigns itself. Takes root and value. */}}
{{- define "toolpulse.securityContext" -}}
{{- $context := default (dict) .value }}
{{- if .root.Values.openshift.enabled }}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}
{{- end }}
{{- with $context }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The families of a Service's addresses. */}}
{{- define "toolpulse.ipFamilies" -}}
{{- $families := dict }}
{{- with .Values.service.ipFamilyPolicy }}
{{- $_ := set $families "ipFamilyPolicy" . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
{{- $_ := set $families "ipFamilies" . }}
{{- end }}
{{- with $families }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of the pod of `helm test`: not those that select our pods, or it would get a part of their calls. */}}
{{- define "toolpulse.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "toolpulse.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The API's address in the cluster. */}}
{{- define "toolpulse.address" -}}
{{- printf "%s.%s.svc:%d" (include "toolpulse.fullname" .) (include "toolpulse.namespace" .) (int .Values.service.port) }}
{{- end }}
