{{/* Parts that several templates share. */}}
{{- define "esg.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "esg.labels" -}}
{{ include "esg.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "esg.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The cluster's version without the vendor's suffix: v1.34.1-gke.200 uses v1.34.1. Tools that
     render without the cluster (Argo CD) supply only the minor version, which gives patch 0. */}}
{{- define "esg.kubeSchedulerImage" -}}
{{- $version := semver .Capabilities.KubeVersion.Version -}}
{{- $tag := printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch -}}
{{ .Values.scheduler.kubeScheduler.image }}:{{ .Values.scheduler.kubeScheduler.tag | default $tag }}
{{- end -}}

{{/* Settings as environment variables: a dict of values, and the prefix of their names. */}}
{{- define "esg.environment" -}}
{{- range $name, $value := .settings }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ $.prefix }}{{ $name | upper }}
  value: {{ kindIs "string" $value | ternary $value ($value | toJson) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "esg.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* An init container that provides the compiled kernels. The root file system is read-only, and Numba
     uses a cache only if it is writable. It copies the folder, not its content: root owns the volume,
     and only root may set its times. */}}
{{- define "esg.kernels" -}}
- name: kernels
  image: {{ include "esg.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [cp, -a, /var/cache/esg-numba, /cache/]
  volumeMounts: [{name: cache, mountPath: /cache}]
  resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 128Mi}}
  securityContext: {{- include "esg.confined" . | nindent 4 }}
{{- end -}}

{{- define "esg.agentEnvironment" -}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
# The NVIDIA runtime adds GPUs, driver and MPS programs to containers with these variables.
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}
- {name: ESG_AGENT_PORT, value: "8889"}
- {name: ESG_AGENT_MPS_ROOT, value: {{ .Values.mps.root | quote }}}
{{- if .Values.mps.enabled }}
# Written by the agent, read by `esg mps`.
- {name: ESG_AGENT_MPS_PERMITS, value: /run/esg-scheduler/permits/gpus.json}
{{- end }}
- {name: ESG_AGENT_REQUIRE_MPS, value: {{ .Values.mps.enabled | quote }}}
- {name: ESG_AGENT_MPS_UID, value: {{ .Values.settings.mps_uid | default 0 | int64 | quote }}}
{{- include "esg.environment" (dict "settings" .Values.agent.settings "prefix" "ESG_AGENT_") }}
{{- with .Values.agent.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "esg.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "esg.removalHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "esg.apiServerEgress" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end -}}

{{- define "esg.gatewayRules" -}}
# Which pods serve which stages, and their address, readiness and share.
- apiGroups: [esg-scheduler.io]
  resources: [workflows, functionservers]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end -}}
