{{/*
The pod, apart from what makes it: a StatefulSet today.
*/}}

{{/* A probe of Kubernetes with its one handler. Takes root, probe (its numbers) and service (whom gRPC health is asked about). */}}
{{- define "toolpulse.probe" -}}
grpc:
  port: {{ int .root.Values.server.admin.port }}
  service: {{ .service | quote }}
{{ toYaml (omit .probe "enabled") }}
{{- end }}

{{/* Labels of the pod. Nothing here moves with the chart's version, which would restart the pod for nothing. */}}
{{- define "toolpulse.podLabels" -}}
{{- $own := include "toolpulse.selectorLabels" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" (include "toolpulse.version" .) }}
{{- $common := include "toolpulse.map" (dict "root" . "value" .Values.commonLabels) | fromYaml }}
{{- $given := include "toolpulse.map" (dict "root" . "value" .Values.podLabels) | fromYaml }}
{{- toYaml (mergeOverwrite (dict) $common $given $own) }}
{{- end }}

{{/* Spread constraints; one without a selector gets ours, since without one it would count no pod. */}}
{{- define "toolpulse.topologySpreadConstraints" -}}
{{- $all := list }}
{{- range include "toolpulse.tpl" (dict "root" . "value" .Values.topologySpreadConstraints) | fromYamlArray }}
{{- if not (hasKey . "labelSelector") }}
{{- $_ := set . "labelSelector" (dict "matchLabels" (include "toolpulse.selectorLabels" $ | fromYaml)) }}
{{- end }}
{{- $all = append $all . }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Volumes, but for the claim that a StatefulSet's template makes. */}}
{{- define "toolpulse.volumes" -}}
- name: config
  configMap:
    name: {{ include "toolpulse.componentName" (dict "root" . "suffix" "config") | quote }}
{{- if include "toolpulse.hasManifest" . }}
- name: manifest
  configMap:
    {{- if .Values.toolsFrom.configMap }}
    name: {{ include "toolpulse.tpl" (dict "root" . "value" .Values.toolsFrom.configMap) | quote }}
    items:
      - key: {{ .Values.toolsFrom.key | quote }}
        path: tools.yaml
    {{- else }}
    name: {{ include "toolpulse.componentName" (dict "root" . "suffix" "tools") | quote }}
    {{- end }}
{{- end }}
{{- with .Values.probing.secrets }}
- name: secrets
  projected:
    # Readable by the pod's group, which fsGroup or OpenShift assigns.
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          {{- toYaml . | nindent 10 }}
      {{- end }}
{{- end }}
{{- if and (eq .Values.store.type "sqlite") .Values.store.sqlite.existingClaim }}
- name: data
  persistentVolumeClaim:
    claimName: {{ include "toolpulse.tpl" (dict "root" . "value" .Values.store.sqlite.existingClaim) | quote }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ include "toolpulse.tpl" (dict "root" $ "value" .) }}
{{- end }}
{{- end }}

{{- define "toolpulse.volumeMounts" -}}
- name: config
  mountPath: {{ include "toolpulse.configDir" . }}
  readOnly: true
{{- if include "toolpulse.hasManifest" . }}
# The directory, not the file: a file would never change.
- name: manifest
  mountPath: {{ include "toolpulse.manifestDir" . }}
  readOnly: true
{{- end }}
{{- if .Values.probing.secrets }}
- name: secrets
  mountPath: {{ include "toolpulse.secretsDir" . }}
  readOnly: true
{{- end }}
{{- if eq .Values.store.type "sqlite" }}
- name: data
  mountPath: {{ include "toolpulse.dataDir" . }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ include "toolpulse.tpl" (dict "root" $ "value" .) }}
{{- end }}
{{- end }}

{{- define "toolpulse.container" -}}
name: toolpulse
image: {{ include "toolpulse.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  {{- include "toolpulse.args" . | nindent 2 }}
{{- with include "toolpulse.env" . | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- include "toolpulse.tpl" (dict "root" $ "value" .) | nindent 2 }}
{{- end }}
ports:
  - name: grpc
    containerPort: {{ int .Values.server.grpc.port }}
    protocol: TCP
  - name: admin
    containerPort: {{ int .Values.server.admin.port }}
    protocol: TCP
{{- if .Values.probes.startup.enabled }}
startupProbe:
  {{- include "toolpulse.probe" (dict "root" . "probe" .Values.probes.startup "service" "liveness") | nindent 2 }}
{{- end }}
{{- if .Values.probes.liveness.enabled }}
livenessProbe:
  {{- include "toolpulse.probe" (dict "root" . "probe" .Values.probes.liveness "service" "liveness") | nindent 2 }}
{{- end }}
{{- if .Values.probes.readiness.enabled }}
readinessProbe:
  {{- include "toolpulse.probe" (dict "root" . "probe" .Values.probes.readiness "service" "") | nindent 2 }}
{{- end }}
{{- /* Kubernetes before 1.34 refuses a sleep of 0. */}}
{{- if gt (int .Values.shutdown.preStopSeconds) 0 }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ int .Values.shutdown.preStopSeconds }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "toolpulse.securityContext" (dict "root" . "value" .Values.securityContext) }}
securityContext:
  {{- . | nindent 2 }}
{{- end }}
# What is wrong with a setting is told on stderr: so it is seen in `kubectl describe pod`.
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  {{- include "toolpulse.volumeMounts" . | nindent 2 }}
{{- end }}

{{- define "toolpulse.podTemplate" -}}
metadata:
  labels:
    {{- include "toolpulse.podLabels" . | nindent 4 }}
  annotations:
    {{- $annotations := include "toolpulse.map" (dict "root" . "value" .Values.commonAnnotations) | fromYaml }}
    {{- $given := include "toolpulse.map" (dict "root" . "value" .Values.podAnnotations) | fromYaml }}
    {{- $sum := dict "checksum/config" (include "toolpulse.config" . | sha256sum) }}
    {{- toYaml (mergeOverwrite (dict) $annotations $given $sum) | nindent 4 }}
spec:
  # A Service called like our prefix would inject TOOLPULSE_PORT=tcp://… and the like.
  enableServiceLinks: false
  automountServiceAccountToken: {{ .Values.serviceAccount.automountServiceAccountToken }}
  serviceAccountName: {{ include "toolpulse.serviceAccountName" . | quote }}
  terminationGracePeriodSeconds: {{ include "toolpulse.terminationGracePeriodSeconds" . }}
  {{- with include "toolpulse.securityContext" (dict "root" . "value" .Values.podSecurityContext) }}
  securityContext:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- include "toolpulse.tpl" (dict "root" $ "value" .) | nindent 4 }}
  {{- end }}
  containers:
    - {{- include "toolpulse.container" . | nindent 6 | trim | printf " %s" }}
    {{- with .Values.extraContainers }}
    {{- include "toolpulse.tpl" (dict "root" $ "value" .) | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "toolpulse.volumes" . | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- include "toolpulse.tpl" (dict "root" $ "value" .) | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- include "toolpulse.topologySpreadConstraints" . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
