{{/* Parts that several templates share. */}}
{{- define "esg.selector" -}}
app.kubernetes.io/name: {{ include "esg.chartName" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{/* Labels of an object, from a list: the root, and the user's labels of this object. The chart's own have
     precedence over those, and those over commonLabels. */}}
{{- define "esg.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- $common := omit $root.Values.commonLabels "app.kubernetes.io/component" -}}
{{- toYaml (merge (include "esg.selector" $root | fromYaml) $own (index . 1) $common) -}}
{{- end -}}
{{- define "esg.labels" -}}
{{- include "esg.labelsWith" (list . dict) -}}
{{- end -}}
{{/* Labels of a component, from a list: the root, the component, and labels of the user. */}}
{{- define "esg.componentLabels" -}}
{{- $component := dict "app.kubernetes.io/component" (index . 1) -}}
{{- toYaml (merge $component (include "esg.labelsWith" (list (index . 0) (index . 2)) | fromYaml)) -}}
{{- end -}}

{{/* An image, from a dict: root, image (without tag), tag, digest. global.imageRegistry replaces the
     registry of its name, which is the first part if that has a dot or a port. */}}
{{- define "esg.imageName" -}}
{{- $name := .image -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $first := first (splitList "/" $name) -}}
{{- if and (contains "/" $name) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $name = trimPrefix (printf "%s/" $first) $name -}}
{{- end -}}
{{- $name = printf "%s/%s" . $name -}}
{{- end -}}
{{- if .digest }}{{ $name }}@{{ .digest }}{{ else }}{{ $name }}:{{ .tag }}{{ end -}}
{{- end -}}
{{- define "esg.image" -}}
{{- $image := .Values.image -}}
{{- include "esg.imageName" (dict "root" . "image" $image.repository "digest" $image.digest "tag" ($image.tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* Pull secrets of a pod, with their key; nothing without any. */}}
{{- define "esg.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq -}}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A ServiceAccount, from a list: the root, its name, its values. */}}
{{- define "esg.serviceAccount" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "esg.labels" $root | nindent 4 }}
  {{- with (index . 2).annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The user's annotations of a Service. */}}
{{- define "esg.serviceAnnotations" -}}
{{- with .Values.service.annotations -}}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The cluster's version without the vendor's suffix: v1.34.1-gke.200 uses v1.34.1. Tools that
     render without the cluster (Argo CD) supply only the minor version, which gives patch 0. */}}
{{- define "esg.kubeSchedulerImage" -}}
{{- $version := semver .Capabilities.KubeVersion.Version -}}
{{- $tag := printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch -}}
{{- with .Values.scheduler.kubeScheduler -}}
{{- include "esg.imageName" (dict "root" $ "image" .image "digest" .digest "tag" (.tag | default $tag)) -}}
{{- end -}}
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

{{/* Labels that make a function pod and never change afterwards, without their prefix, as a list in CEL. */}}
{{- define "esg.fixedLabels" -}}
['workflow', 'function', 'stage', 'pool', 'measurement', 'gateway-group']
{{- end -}}

{{/* Delivery by resource claims, for the webhook and the extender. */}}
{{- define "esg.claimEnvironment" -}}
{{- if .Values.dra.enabled }}
{{- if semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version }}
{{- fail "dra.enabled needs Kubernetes 1.34 or later; set it to false" }}
{{- end }}
- {name: ESG_RESOURCE_CLAIMS, value: "true"}
{{- end }}
{{- end -}}

{{/* The user of all function pods; 0: that of their images. */}}
{{- define "esg.mpsUid" -}}
{{- $uid := get .Values.settings "mps_uid" -}}
{{- if or (kindIs "invalid" $uid) (eq "" (toString $uid)) }}1000{{ else }}{{ int64 $uid }}{{ end -}}
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
- {name: ESG_AGENT_MPS_GRANTS, value: /run/esg-scheduler/permits/grants.json}
{{- end }}
{{- if .Values.dra.enabled }}
- {name: ESG_AGENT_KUBELET_ROOT, value: {{ .Values.dra.kubeletRoot | quote }}}
{{- end }}
{{- if .Values.autoscaler.enabled }}
- {name: ESG_AGENT_AUTOSCALED, value: "true"}
{{- end }}
- {name: ESG_AGENT_REQUIRE_MPS, value: {{ .Values.mps.enabled | quote }}}
- {name: ESG_AGENT_MPS_UID, value: {{ include "esg.mpsUid" . | quote }}}
{{- include "esg.environment" (dict "settings" .Values.agent.settings "prefix" "ESG_AGENT_") }}
{{- with .Values.agent.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Ports of the webhook's pods, on the node if it uses the host's network. */}}
{{- define "esg.webhookPort" -}}
{{- with .Values.webhook.hostNetwork }}{{ .enabled | ternary .port 8443 | int }}{{ end -}}
{{- end -}}
{{- define "esg.webhookHealthPort" -}}
{{- with .Values.webhook.hostNetwork }}{{ .enabled | ternary .healthPort 8890 | int }}{{ end -}}
{{- end -}}

{{- define "esg.crdsHook" -}}
helm.sh/hook: pre-upgrade
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
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
{{- if include "esg.onOpenshift" . }}
# The port of its DNS pods: policies apply behind the Service.
- ports: [{port: 5353, protocol: UDP}, {port: 5353, protocol: TCP}]
{{- end }}
{{- end -}}

{{- /* Non-empty on OpenShift. */ -}}
{{- define "esg.onOpenshift" -}}
{{- if or .Values.openshift.enabled (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}true{{ end }}
{{- end -}}

{{- /* Non-empty if the gateway's replicas own namespaces by Leases. One replica does, too, if pods are
pooled: two of them run during a roll-out, and a pool has one dispatcher. */ -}}
{{- define "esg.gatewayLeases" -}}
{{- if or (gt (int .Values.gateway.replicas) 1) (eq (get .Values.gateway.settings "share") "pooled") }}true{{ end }}
{{- end }}

{{ define "esg.gatewayRules" -}}
# Which pods serve which stages, and their address, readiness and share.
- apiGroups: [esg-scheduler.io]
  resources: [workflows, functionservers]
  verbs: [list, watch]
# Their conditions, and Events about those that become false.
- apiGroups: [esg-scheduler.io]
  resources: [workflows/status, functionservers/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end -}}
