{{- define "idgraph.name" -}}
{{- if contains "idgraph" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-idgraph{{ end -}}
{{- end }}

{{- define "idgraph.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Labels that select pods: (list ROOT COMPONENT). */}}
{{- define "idgraph.selector" -}}
app.kubernetes.io/name: idgraph
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "idgraph.labels" -}}
{{ include "idgraph.selector" . }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
{{- end }}

{{- define "idgraph.pod.security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "idgraph.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Where pods run, and their image's secrets. */}}
{{- define "idgraph.pod.scheduling" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pods of a component on different nodes, where that is possible: (list ROOT COMPONENT). */}}
{{- define "idgraph.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "idgraph.selector" . | nindent 14 }}
{{- end }}

{{- define "idgraph.env" -}}
- name: IDGRAPH_CONFIG
  value: /etc/idgraph/configuration/idgraph.toml
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A secret's files are its group's too, which a keyring's must not be. */}}
{{- define "idgraph.keys.container" -}}
- name: keys
  image: {{ include "idgraph.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: ["/bin/sh", "-ec", "umask 077 && cp /secret/keyring.json /etc/idgraph/keys/keyring.json"]
  resources:
    requests: {cpu: 50m, memory: 64Mi, ephemeral-storage: 16Mi}
    limits: {memory: 128Mi, ephemeral-storage: 64Mi}
  securityContext:
    {{- include "idgraph.container.security" . | nindent 4 }}
  volumeMounts:
    - name: keys-secret
      mountPath: /secret
      readOnly: true
    - name: keys
      mountPath: /etc/idgraph/keys
{{- end }}

{{/* Which image a pod of the metadata service has. */}}
{{- define "idgraph.image.label" -}}
idgraph/image: {{ include "idgraph.image" . | sha256sum | trunc 16 | quote }}
{{- end }}

{{/* Waits for a ready metadata service of this image, so that an upgrade and a roll back begin with it. */}}
{{- define "idgraph.metadata.container" -}}
- name: metadata
  image: {{ include "idgraph.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - /bin/sh
    - -ec
    - |
      until python -c 'import socket; socket.create_connection(("{{ include "idgraph.name" . }}-metadata-current", 8410), 3)' 2>/dev/null
      do sleep 1; done
  resources:
    requests: {cpu: 50m, memory: 64Mi, ephemeral-storage: 16Mi}
    limits: {memory: 128Mi, ephemeral-storage: 64Mi}
  securityContext:
    {{- include "idgraph.container.security" . | nindent 4 }}
{{- end }}

{{- define "idgraph.keys.volumes" -}}
- name: keys-secret
  secret:
    secretName: {{ .Values.secrets.keyring }}
    defaultMode: 256 # 0400, which not every reader of YAML takes for octal
- name: keys
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}

{{- define "idgraph.metadata.secret" -}}
{{ .Values.tls.metadataSecret | default (printf "%s-metadata-tls" (include "idgraph.name" .)) }}
{{- end }}

{{- define "idgraph.profiles.secret" -}}
{{ .Values.tls.profilesSecret | default (printf "%s-profiles-tls" (include "idgraph.name" .)) }}
{{- end }}

{{/* The authority alone: no client has the service's key. */}}
{{- define "idgraph.ca.volume" -}}
- name: metadata-ca
  secret:
    secretName: {{ include "idgraph.metadata.secret" . }}
    defaultMode: 256 # 0400, which not every reader of YAML takes for octal
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}

{{- define "idgraph.elasticsearch.volume" -}}
{{- with .Values.secrets.elasticsearch }}
- name: elasticsearch
  secret:
    secretName: {{ . }}
    defaultMode: 256 # 0400, which not every reader of YAML takes for octal
{{- end }}
{{- end }}

{{- define "idgraph.elasticsearch.mount" -}}
{{- if .Values.secrets.elasticsearch }}
- name: elasticsearch
  mountPath: /etc/idgraph/elasticsearch
  readOnly: true
{{- end }}
{{- end }}

{{/* A value of TOML: of a table `{k = v}`. JSON has the same texts, numbers and booleans. */}}
{{- define "idgraph.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true }}{{ range $key, $value := . }}{{ if not $first }}, {{ end }}{{ $first = false }}{{ $key | toJson }} = {{ include "idgraph.toml.value" $value }}{{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $number, $value := . }}{{ if $number }}, {{ end }}{{ include "idgraph.toml.value" $value }}{{ end -}} ]
{{- else -}}
{{ . | toJson }}
{{- end -}}
{{- end }}

{{/* idgraph.toml of a map. */}}
{{- define "idgraph.toml" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "idgraph.toml.value" $value }}
{{- end }}
{{- end }}
{{- range $table, $keys := . }}
{{- if kindIs "map" $keys }}

[{{ $table }}]
{{- range $key, $value := $keys }}
{{ $key }} = {{ include "idgraph.toml.value" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A volume's own folder is root's: `directory` is one below it, which the process makes and owns. */}}
{{/* What all processes are configured with, as YAML. The sources of all flows: a service replays and shows them. */}}
{{- define "idgraph.settings" -}}
{{- $name := include "idgraph.name" . -}}
{{- $sources := list -}}
{{- range $flow := .Values.flows }}{{ $sources = concat $sources ($flow.sources | default list) }}{{ end -}}
{{- $own := dict
  "directory" "/var/lib/idgraph/state"
  "keyring" "/etc/idgraph/keys/keyring.json"
  "sources" $sources
  "metadata" (dict
    "url" (printf "https://%s-metadata:8410" $name)
    "ca_file" "/etc/idgraph/metadata-ca/ca.crt"
    "certificate_file" "/etc/idgraph/tls/tls.crt"
    "certificate_key_file" "/etc/idgraph/tls/tls.key"
    "flow_token_file" "/etc/idgraph/token/flow.token")
  "profiles" (dict
    "url" (printf "https://%s-profiles:8420" $name)
    "host" "0.0.0.0"
    "certificate_file" "/etc/idgraph/tls/tls.crt"
    "certificate_key_file" "/etc/idgraph/tls/tls.key"
    "token_file" "/etc/idgraph/token/profiles.token") -}}
{{- mergeOverwrite $own (deepCopy .Values.settings) | toYaml }}
{{- end }}
