{{/* Names, labels and identities. */}}

{{- define "atoll.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 24 | trimSuffix "-" -}}
{{- end }}

{{/* What follows a Service's name in the cluster's DNS. */}}
{{- define "atoll.domain" -}}
{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "atoll.coordinator" -}}
{{ include "atoll.fullname" . }}-coordinator.{{ include "atoll.domain" . }}:7400
{{- end }}

{{/* Where islands of the cluster reach it: its port for islands alone, if it has
     one. */}}
{{- define "atoll.coordinatorOfIslands" -}}
{{ include "atoll.fullname" . }}-coordinator.{{ include "atoll.domain" . }}:{{ eq .Values.coordinator.expose.type "None" | ternary 7400 7402 }}
{{- end }}

{{/* (dict "root" $ "component" NAME): what selects a component's pods. */}}
{{- define "atoll.selector" -}}
app.kubernetes.io/name: atoll
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "atoll.labels" -}}
{{ include "atoll.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* (dict "component" NAME "root" $ "name" NAME): a whole metadata. */}}
{{- define "atoll.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "atoll.labels" . | nindent 2 }}
{{- end }}

{{/* A merged image: (dict "root" $ "image" OVERRIDES). */}}
{{- define "atoll.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (.image | default dict) -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "atoll.secretPrefix" -}}
{{- if eq .Values.tls.mode "existingSecret" -}}
{{ .Values.tls.existingSecret.prefix | default (include "atoll.fullname" .) }}
{{- else -}}
{{ include "atoll.fullname" . }}
{{- end -}}
{{- end }}

{{/* (dict "text" TEXT "id" SERVER_ID "ordinal" N): fills in placeholders. */}}
{{- define "atoll.fill" -}}
{{ .text | replace "{server-id}" .id | replace "{ordinal}" (toString .ordinal) }}
{{- end }}

{{/* HOST:PORT outside: (dict "expose" EXPOSE "inside" HOST:PORT). */}}
{{- define "atoll.outside" -}}
{{- if eq .expose.type "NodePort" -}}
{{ .expose.address }}:{{ int .expose.nodePort }}
{{- else if ne .expose.type "None" -}}
{{ .expose.address }}:{{ int .expose.port }}
{{- else -}}
{{ .inside }}
{{- end -}}
{{- end }}

{{/* (dict "root" $ "service" NAME "expose" EXPOSE): a Service's names, and its
     address outside. */}}
{{- define "atoll.hosts" -}}
- {{ .service }}
- {{ .service }}.{{ .root.Release.Namespace }}
- {{ .service }}.{{ .root.Release.Namespace }}.svc
- {{ .service }}.{{ include "atoll.domain" .root }}
- localhost
- 127.0.0.1
{{- if ne .expose.type "None" }}
- {{ .expose.address }}
{{- end }}
{{- end }}

{{/* A YAML list of {name, role, id, hosts}: who needs a certificate. The Secret
     is PREFIX-name-tls. */}}
{{- define "atoll.identities" -}}
{{- $full := include "atoll.fullname" . -}}
{{- $domain := include "atoll.domain" . -}}
- name: coordinator
  role: coordinator
  id: coordinator
  hosts:
    {{- include "atoll.hosts" (dict "root" $ "service" (printf "%s-coordinator" $full) "expose" .Values.coordinator.expose) | nindent 4 }}
{{- range $i := until (int .Values.server.replicas) }}
{{- $id := printf "%s-server-%d" $full $i }}
- name: server-{{ $i }}
  role: server
  id: {{ $id }}
  hosts:
    - {{ $id }}.{{ $full }}-server.{{ $domain }}
    {{- with $.Values.server.expose }}
    {{- if ne .type "None" }}
    - {{ include "atoll.fill" (dict "text" .address "id" $id "ordinal" $i) }}
    {{- end }}
    {{- end }}
{{- end }}
{{- if .Values.gate.enabled }}
- name: gate
  role: gate
  id: gate
  hosts:
    {{- include "atoll.hosts" (dict "root" $ "service" (printf "%s-gate" $full) "expose" .Values.gate.expose) | nindent 4 }}
{{- end }}
- name: operator
  role: operator
  id: operator
{{- range $island := .Values.islands }}
{{- range $i := until (int ($island.replicas | default 1)) }}
- name: {{ $island.name }}-{{ $i }}
  role: island
  id: {{ $full }}-{{ $island.name }}-{{ $i }}
{{- end }}
{{- end }}
{{- range .Values.tls.islands }}
- name: {{ . }}
  role: island
  id: {{ . }}
{{- end }}
{{- end }}
