{{/* The pods of islands: (dict "root" $ "island" ENTRY "group" GROUP). A group
     is what one Job or StatefulSet runs: all islands of an entry, or one island
     of several processes. */}}

{{- define "atoll.island.selector" -}}
{{ include "atoll.selector" (dict "root" .root "component" "island") }}
atoll/island: {{ .group.label }}
{{- end }}

{{- define "atoll.island.template" -}}
{{- $full := include "atoll.fullname" .root -}}
{{- $island := .island -}}
{{- $job := eq $island.kind "Job" -}}
{{- $processes := int ($island.processes | default 1) -}}
{{- $index := gt $processes 1 | ternary (toString .group.first) "$(POD_INDEX)" -}}
metadata:
  labels:
    {{- include "atoll.island.selector" . | nindent 4 }}
    {{- with $island.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "atoll.pod" (dict "root" .root "values" (merge (dict) $island (dict "terminationGracePeriodSeconds" 60))) | nindent 2 }}
  {{- if $job }}
  restartPolicy: Never
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "atoll.island.selector" . | nindent 10 }}
  containers:
    - name: island
      {{- include "atoll.container" (dict "root" .root "image" $island.image) | nindent 6 }}
      command: [atoll]
      args:
        - join
        - {{ include "atoll.coordinatorOfIslands" .root }}
        - --run={{ .root.Values.run.id }}
        - --island-id={{ $full }}-{{ $island.name }}-{{ $index }}
        - --wait-for-run=1h
        {{- if not $job }}
        - --idle-after-run  # A StatefulSet restarts what ends.
        {{- end }}
        {{- if .root.Values.data.url }}
        - --data-cache=/var/cache/atoll
        # A GB is less than a Gi: the rest is for files in use.
        - --cache-size={{ .root.Values.dataCache.size | replace "i" "B" }}
        {{- else }}
        - --data={{ .root.Values.data.path }}
        {{- end }}
        - --dir=/var/lib/atoll/work
        - --device={{ $island.device | default "cpu" }}
        {{- with $island.mesh }}
        - --mesh={{ . }}
        {{- end }}
        {{- if gt $processes 1 }}
        - --processes={{ $processes }}
        - --process-index=$(POD_INDEX)
        - --rendezvous={{ .group.name }}.{{ include "atoll.domain" .root }}:7410
        {{- end }}
        - --metrics-listen=$(POD_IP):7490
        {{- include "atoll.tlsArgs" (printf "/etc/atoll/tls/%s" $index) | nindent 8 }}
        {{- range $island.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        {{- include "atoll.podEnv" .root | nindent 8 }}
        - name: POD_INDEX
          valueFrom:
            fieldRef: {fieldPath: "metadata.labels['{{ include "atoll.island.indexLabel" . }}']"}
      ports:
        - {name: metrics, containerPort: 7490}
        {{- if gt $processes 1 }}
        - {name: rendezvous, containerPort: 7410}
        {{- end }}
      {{- include "atoll.probes" .root | nindent 6 }}
      resources:
        {{- toYaml $island.resources | nindent 8 }}
      volumeMounts:
        - {name: work, mountPath: /var/lib/atoll}
        {{- if .root.Values.data.url }}
        - {name: cache, mountPath: /var/cache/atoll}
        {{- end }}
        {{- include "atoll.tlsMounts" .root | nindent 8 }}
        {{- include "atoll.dataMount" .root | nindent 8 }}
        {{- with .root.Values.data.authorities }}
        {{- include "atoll.authoritiesMount" . | nindent 8 }}
        {{- end }}
        {{- if hasPrefix "cuda" ($island.device | default "cpu") }}
        - {name: shm, mountPath: /dev/shm}
        {{- end }}
    {{- with $island.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- $secrets := list }}
    {{- $prefix := include "atoll.secretPrefix" .root }}
    {{- range $i := untilStep (int .group.first) (int .group.end) 1 }}
    {{- $secrets = append $secrets (dict "name" (printf "%s-%s-%d-tls" $prefix $island.name $i) "folder" $i) }}
    {{- end }}
    {{- include "atoll.tlsVolume" (dict "secrets" $secrets) | nindent 4 }}
    {{- include "atoll.dataVolume" .root | nindent 4 }}
    {{- with .root.Values.data.authorities }}
    {{- include "atoll.authoritiesVolume" . | nindent 4 }}
    {{- end }}
    {{- if .root.Values.data.url }}
    - name: cache
      emptyDir: {sizeLimit: {{ .root.Values.dataCache.size }}}
    {{- end }}
    {{- if $job }}
    - name: work
      emptyDir: {sizeLimit: {{ $island.workSize | default "10Gi" }}}
    {{- end }}
    {{- if hasPrefix "cuda" ($island.device | default "cpu") }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: 1Gi}  # For NCCL.
    {{- end }}
{{- end }}

{{/* The label that holds a pod's number in its Job or StatefulSet. */}}
{{- define "atoll.island.indexLabel" -}}
{{ eq .island.kind "Job" | ternary "batch.kubernetes.io/job-completion-index" "apps.kubernetes.io/pod-index" }}
{{- end }}

{{- define "atoll.island.jobSpec" -}}
completionMode: Indexed
completions: {{ .group.pods }}
parallelism: {{ .group.pods }}
backoffLimitPerIndex: {{ .island.backoffLimitPerIndex | default 20 }}
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions:
        - {type: DisruptionTarget, status: "True"}
    - action: Ignore  # 12: ended by SIGTERM, to be started again.
      onExitCodes: {containerName: island, operator: In, values: [12]}
    - action: FailIndex  # A wrong command line (2) or run (4) stays wrong.
      onExitCodes:
        containerName: island
        operator: In
        values: [2, 4]
template:
  {{- include "atoll.island.template" . | nindent 2 }}
{{- end }}
