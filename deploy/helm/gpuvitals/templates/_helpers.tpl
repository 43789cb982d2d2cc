{{- define "gpuvitals.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Selectors never change on upgrade: no version here. Takes (list $ component). */}}
{{- define "gpuvitals.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "gpuvitals.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpuvitals.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpuvitals
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* name, namespace and labels of an object. Takes (list $ component suffix). */}}
{{- define "gpuvitals.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "gpuvitals.fullname" $root }}{{ with index . 2 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "gpuvitals.labels" . | nindent 2 }}
{{- end -}}

{{- define "gpuvitals.image" -}}
{{- $i := .Values.image -}}
{{- with $i.registry }}{{ . }}/{{ end }}{{ $i.repository }}
{{- if $i.digest }}@{{ $i.digest }}{{ else }}:{{ default .Chart.AppVersion $i.tag }}{{ end }}
{{- end -}}

{{- define "gpuvitals.agentImage" -}}
{{- $i := .Values.image -}}
{{- with .Values.agent.image.repository -}}
{{- $i = dict "registry" $i.registry "repository" . "tag" $i.tag "digest" $.Values.agent.image.digest -}}
{{- end -}}
{{- include "gpuvitals.image" (dict "Values" (dict "image" $i) "Chart" .Chart) -}}
{{- end -}}

{{- define "gpuvitals.scheme" -}}
{{- if .Values.tls.existingSecret }}https{{ else }}http{{ end }}
{{- end -}}

{{- define "gpuvitals.authSecret" -}}
{{- default (printf "%s-tokens" (include "gpuvitals.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "gpuvitals.queueUrl" -}}
{{- if .Values.broker.enabled -}}
{{- ternary "grpcs" "grpc" (ne .Values.tls.existingSecret "") }}://{{ include "gpuvitals.fullname" . }}-broker:{{ .Values.broker.port }}
{{- else -}}
{{- .Values.queue.url -}}
{{- end -}}
{{- end -}}

{{/* Whether the collectors have volumes: a word or nothing. */}}
{{- define "gpuvitals.collectorKeeps" -}}
{{- $wanted := .Values.collector.persistence.enabled -}}
{{- if or (eq (toString $wanted) "true") (and (eq (toString $wanted) "auto") (not .Values.database.host)) }}yes{{ end }}
{{- end -}}

{{/* Whether the gateway reads clusters from outside: a word or nothing. */}}
{{- define "gpuvitals.readsClusters" -}}
{{- if or .Values.kubernetes.own.enabled .Values.kubernetes.clusters }}yes{{ end }}
{{- end -}}

{{/* Refuses values that cannot work together. */}}
{{- define "gpuvitals.check" -}}
{{- if and .Values.agent.image.digest (not .Values.agent.image.repository) -}}
{{- fail "agent.image.digest is that of another image, so agent.image.repository must name it" -}}
{{- end -}}
{{- if and .Values.collector.enabled (not (include "gpuvitals.queueUrl" .)) -}}
{{- fail "collector.enabled needs a queue: broker.enabled, or queue.url" -}}
{{- end -}}
{{- if and .Values.broker.enabled .Values.queue.url -}}
{{- fail "queue.url names a queue elsewhere, so broker.enabled must be false" -}}
{{- end -}}
{{- if and .Values.gateway.enabled (not .Values.collector.enabled) -}}
{{- fail "gateway.enabled needs collector.enabled: the gateway asks the collectors" -}}
{{- end -}}
{{- if .Values.agent.flight.jobs -}}
{{- if not (and .Values.agent.flight.hostPath .Values.gateway.enabled) -}}
{{- fail "agent.flight.jobs needs agent.flight.hostPath, where each node keeps its part, and gateway.enabled" -}}
{{- end -}}
{{- if or .Values.gateway.autoscaling.enabled (gt (int .Values.gateway.replicas) 1) -}}
{{- fail "agent.flight.jobs: gateway.replicas must be 1 and gateway.autoscaling off: each gateway would keep a part of an incident" -}}
{{- end -}}
{{- end -}}
{{- $config := .Values.collector.config -}}
{{- $sends := list -}}
{{- if dig "remote_write" "url" "" $config -}}
{{- $sends = append $sends "remote_write" -}}
{{- end -}}
{{- if and (dig "otlp" "endpoint" "" $config) (ne (dig "otlp" "metrics" true $config | toString) "false") -}}
{{- $sends = append $sends "otlp" -}}
{{- end -}}
{{- if and .Values.collector.enabled $sends (gt (int .Values.collector.replicas) 1) -}}
{{- fail (printf "collector.config.%s: each of the %d collectors would send the metrics of all GPUs, so that sums come out too high. Set agent.config.%s in its place, or collector.replicas: 1" (first $sends) (int .Values.collector.replicas) (first $sends)) -}}
{{- end -}}
{{- if include "gpuvitals.readsClusters" . -}}
{{- if not .Values.gateway.enabled -}}
{{- fail "kubernetes: it is the gateway that reads clusters, and gateway.enabled turns it off" -}}
{{- end -}}
{{- if or .Values.gateway.autoscaling.enabled (gt (int .Values.gateway.replicas) 1) -}}
{{- fail "kubernetes: gateway.replicas must be 1 and gateway.autoscaling off: each gateway would run commands on every node" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings as a file: those of the chart, and over them what the values say. Takes (list text overrides...). */}}
{{- define "gpuvitals.settings" -}}
{{- $settings := fromYaml (first .) -}}
{{- range rest . -}}
{{- $settings = mergeOverwrite $settings (deepCopy .) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Sections that all services have. Takes (list $ guarded): whether tokens protect the port. */}}
{{- define "gpuvitals.sections" -}}
{{- $root := index . 0 -}}
log:
  level: {{ $root.Values.logLevel | quote }}
  format: json
listener:
  {{- if and $root.Values.auth.enabled (index . 1) }}
  token_file: /etc/gpuvitals/auth/tokens
  {{- else if not $root.Values.auth.enabled }}
  insecure: true
  {{- end }}
  guard_metrics: {{ and $root.Values.auth.enabled $root.Values.auth.metrics }}
  {{- if $root.Values.tls.existingSecret }}
  tls_cert: /etc/gpuvitals/tls/tls.crt
  tls_key: /etc/gpuvitals/tls/tls.key
  {{- end }}
{{- end -}}

{{/* The way to the queue. */}}
{{- define "gpuvitals.queue" -}}
message_queue:
  address: {{ include "gpuvitals.queueUrl" . | quote }}
  topic: {{ .Values.queue.topic | quote }}
  {{- if .Values.broker.enabled }}
  {{- if .Values.auth.enabled }}
  token_file: /etc/gpuvitals/auth/token
  {{- end }}
  {{- if .Values.tls.existingSecret }}
  ca: /etc/gpuvitals/tls/ca.crt
  {{- end }}
  {{- else if .Values.queue.existingSecret }}
  {{- if .Values.queue.tokenKey }}
  token_file: /etc/gpuvitals/queue/token
  {{- end }}
  {{- if .Values.queue.credentialsKey }}
  credentials_file: /etc/gpuvitals/queue/credentials
  {{- end }}
  {{- if .Values.queue.caKey }}
  ca: /etc/gpuvitals/queue/ca.crt
  {{- end }}
  {{- end }}
{{- end -}}

{{- define "gpuvitals.database" -}}
database:
  host: {{ .Values.database.host | quote }}
  {{- if .Values.database.host }}
  port: {{ .Values.database.port }}
  user: {{ .Values.database.user | quote }}
  dbname: {{ .Values.database.name | quote }}
  sslmode: {{ .Values.database.sslmode }}
  {{- if .Values.database.existingSecret }}
  password_file: /etc/gpuvitals/database/password
  {{- if .Values.database.caKey }}
  sslrootcert: /etc/gpuvitals/database/ca.crt
  {{- end }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/*
Volumes with what the settings name. Takes a dict: root, config (name of the ConfigMap), token (key of the Secret, or
empty), tokens, queue, database, remoteWrite, clusters (whether they are mounted).
*/}}
{{- define "gpuvitals.volumes" -}}
{{- $v := .root.Values -}}
- name: config
  configMap:
    name: {{ .config }}
{{- if and $v.auth.enabled (or .token .tokens) }}
- name: auth
  secret:
    secretName: {{ include "gpuvitals.authSecret" .root }}
    defaultMode: 0440
    items:
      {{- if .tokens }}
      - {key: tokens, path: tokens}
      {{- end }}
      {{- with .token }}
      - {key: {{ . }}, path: token}
      {{- end }}
{{- end }}
{{- with $v.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if and .queue (not $v.broker.enabled) $v.queue.existingSecret }}
- name: queue
  secret:
    secretName: {{ $v.queue.existingSecret }}
    defaultMode: 0440
    items:
      {{- with $v.queue.tokenKey }}
      - {key: {{ . | quote }}, path: token}
      {{- end }}
      {{- with $v.queue.credentialsKey }}
      - {key: {{ . | quote }}, path: credentials}
      {{- end }}
      {{- with $v.queue.caKey }}
      - {key: {{ . | quote }}, path: ca.crt}
      {{- end }}
{{- end }}
{{- if and .remoteWrite $v.remoteWrite.existingSecret }}
- name: remote-write
  secret:
    secretName: {{ $v.remoteWrite.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if and .clusters $v.kubernetes.existingSecret }}
- name: clusters
  secret:
    secretName: {{ $v.kubernetes.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if and .database $v.database.host $v.database.existingSecret }}
- name: database
  secret:
    secretName: {{ $v.database.existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ $v.database.passwordKey | quote }}, path: password}
      {{- with $v.database.caKey }}
      - {key: {{ . | quote }}, path: ca.crt}
      {{- end }}
{{- end }}
{{- end -}}

{{/* Where these volumes are mounted. Takes the same dict. */}}
{{- define "gpuvitals.mounts" -}}
{{- range include "gpuvitals.volumes" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: /etc/gpuvitals/{{ .name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* Probes on the paths that every service has. Takes (list $ failures-at-the-start path-of-readiness). */}}
{{- define "gpuvitals.probes" -}}
{{- $scheme := include "gpuvitals.scheme" (index . 0) | upper -}}
startupProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: {{ index . 1 }}
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: {{ index . 2 }}, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{/* Security of a pod that is not root. */}}
{{- define "gpuvitals.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gpuvitals.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What all pods have in common. Takes (list $ component account values). */}}
{{- define "gpuvitals.pod" -}}
{{- $root := index . 0 -}}
{{- $values := index . 2 -}}
serviceAccountName: {{ include "gpuvitals.fullname" $root }}-{{ index . 1 }}
automountServiceAccountToken: {{ dig "mountsToken" false $values }}
enableServiceLinks: false
terminationGracePeriodSeconds: 45
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The account of a component, without a token in its pods. Takes (list $ component). */}}
{{- define "gpuvitals.account" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.serviceAccounts.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "gpuvitals.metadata" (list $root (index . 1) (index . 1)) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{/* A budget of disruption for a component with more than one pod. Takes (list $ component). */}}
{{- define "gpuvitals.budget" -}}
{{- $root := index . 0 -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "gpuvitals.metadata" (list $root (index . 1) (index . 1)) | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "gpuvitals.selector" . | nindent 6 }}
{{- end -}}

{{/* Whether an object of the Prometheus operator is made: a word or nothing. Takes (list $ wanted kind). */}}
{{- define "gpuvitals.monitors" -}}
{{- $root := index . 0 -}}
{{- $wanted := toString (index . 1) -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)))) }}yes{{ end }}
{{- end -}}
