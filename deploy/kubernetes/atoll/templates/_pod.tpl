{{/* What all pods have in common. */}}

{{/* Fields of a pod's spec: (dict "root" $ "values" VALUES). */}}
{{- define "atoll.pod" -}}
automountServiceAccountToken: false
serviceAccountName: {{ include "atoll.fullname" .root }}
enableServiceLinks: false
securityContext:
  {{- include "atoll.podSecurity" . | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- end }}

{{- define "atoll.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Fields of a container: (dict "root" $ "image" OVERRIDES). */}}
{{- define "atoll.container" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (.image | default dict) -}}
image: {{ include "atoll.image" . }}
imagePullPolicy: {{ $image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  readOnlyRootFilesystem: true
{{- end }}

{{- define "atoll.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 3
{{- end }}

{{- define "atoll.podEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: POD_IP
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
{{- end }}

{{/* Arguments for the certificate in a directory, which is the context. */}}
{{- define "atoll.tlsArgs" -}}
- --tls-dir={{ . }}
{{- end }}

{{/* Volume `tls`: (dict "secrets" LIST), each {name, folder}. A folder each,
     because a subPath would not follow a renewal. "more": other files of each
     Secret. "crl": a Secret with the list of revoked certificates, which may be
     missing. */}}
{{- define "atoll.tlsVolume" -}}
- name: tls
  projected:
    defaultMode: 288  # 0440
    sources:
      {{- range .secrets }}
      - secret:
          name: {{ .name }}
          items:
            {{- $folder := .folder }}
            {{- range concat (list "tls.crt" "tls.key" "ca.crt") ($.more | default list) }}
            - {key: {{ . }}, path: {{ $folder }}/{{ . }}}
            {{- end }}
      {{- end }}
      {{- with .crl }}
      - secret:
          name: {{ . }}
          optional: true
          items:
            {{- range $.secrets }}
            - {key: crl.pem, path: {{ .folder }}/crl.pem}
            {{- end }}
      {{- end }}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end }}

{{- define "atoll.tlsMounts" -}}
- {name: tls, mountPath: /etc/atoll/tls, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "atoll.dataVolume" -}}
{{- with .Values.data.volume }}
- name: data
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "atoll.dataMount" -}}
{{- if .Values.data.volume }}
- {name: data, mountPath: {{ .Values.data.path }}, readOnly: true}
{{- end }}
{{- end }}

{{/* A volume of the ConfigMap that is the context. */}}
{{- define "atoll.authoritiesVolume" -}}
- name: authorities
  configMap:
    name: {{ . }}
    items:
      - {key: ca.crt, path: ca-certificates.crt}
{{- end }}

{{/* The programs trust what is in this folder. */}}
{{- define "atoll.authoritiesMount" -}}
- {name: authorities, mountPath: /etc/ssl/certs, readOnly: true}
{{- end }}

{{/* More fields of a container with the keys of s3://. Islands have none: the
     coordinator signs a URL of each file for them. */}}
{{- define "atoll.dataEnv" -}}
{{- with .Values.data.credentials | default .Values.checkpoint.credentials }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{/* The same for a server, which only copies checkpoints. */}}
{{- define "atoll.mirrorEnv" -}}
{{- with .Values.checkpoint.credentials }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "atoll.clusterIdEnv" -}}
- name: CLUSTER_ID
  {{- if .Values.coordinator.clusterId }}
  value: {{ .Values.coordinator.clusterId | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef: {name: {{ include "atoll.fullname" . }}-cluster, key: cluster-id}
  {{- end }}
{{- end }}

{{/* A volumeClaimTemplate: (dict "name" NAME "size" SIZE "storageClass" CLASS
     "accessMode" MODE). */}}
{{- define "atoll.claim" -}}
- metadata:
    name: {{ .name }}
  spec:
    accessModes: [{{ .accessMode | default "ReadWriteOncePod" }}]
    {{- with .storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests:
        storage: {{ .size }}
{{- end }}
