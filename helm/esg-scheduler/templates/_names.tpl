{{/* One helper per name: every template takes resource names from here. */}}
{{- define "esg.chartName" -}}{{ .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- define "esg.name" -}}
{{- $name := include "esg.chartName" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- define "esg.scheduler" -}}{{ include "esg.name" . }}{{- end -}}
{{- define "esg.webhook" -}}{{ include "esg.name" . }}-webhook{{- end -}}
{{- define "esg.gateway" -}}{{ include "esg.name" . }}-gateway{{- end -}}
{{- define "esg.agent" -}}{{ include "esg.name" . }}-agent{{- end -}}
{{- define "esg.selfSigned" -}}{{ include "esg.webhook" . }}-self-signed{{- end -}}
{{- define "esg.authority" -}}{{ include "esg.webhook" . }}-authority{{- end -}}
{{- define "esg.certificate" -}}{{ include "esg.name" . }}-tls{{- end -}}
{{- define "esg.dashboard" -}}{{ include "esg.name" . }}-dashboard{{- end -}}
{{- define "esg.quota" -}}{{ include "esg.name" . }}-critical-pods{{- end -}}
{{- define "esg.test" -}}{{ include "esg.name" . }}-test{{- end -}}
{{- define "esg.crds" -}}{{ include "esg.name" . }}-crds{{- end -}}
{{- define "esg.removal" -}}{{ include "esg.name" . }}-removal{{- end -}}
{{/* Cluster-wide names contain the namespace: two releases of one name must not share them. */}}
{{- define "esg.clusterName" -}}{{ include "esg.name" . }}-{{ .Release.Namespace }}{{- end -}}

{{/* Secret of the webhook's certificate. */}}
{{- define "esg.tls" -}}
{{- .Values.webhook.existing.secretName | default (include "esg.certificate" .) -}}
{{- end -}}
{{- define "esg.webhookHost" -}}{{ include "esg.webhook" . }}.{{ .Release.Namespace }}.svc{{- end -}}
