{{/* The pod that Spark makes executors of: (list ROOT FLOW KEY). */}}
{{- define "idgraph.executor" -}}
{{- $root := index . 0 -}}
{{- $flow := index . 1 -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "idgraph.labels" (list $root "executor") | nindent 4 }}
    idgraph/flow: {{ index . 2 }}
spec:
  serviceAccountName: {{ include "idgraph.name" $root }}-worker
  automountServiceAccountToken: false
  {{- with include "idgraph.pod.scheduling" $root | trim }}{{ . | nindent 2 }}{{ end }}
  {{- include "idgraph.apart" (list $root "executor") | nindent 2 }}
  # Spark replaces executors whose heartbeats are missing.
  terminationGracePeriodSeconds: 30
  securityContext:
    {{- include "idgraph.pod.security" $root | nindent 4 }}
  initContainers:
    {{- include "idgraph.keys.container" $root | nindent 4 }}
  containers:
    - name: executor
      workingDir: /tmp
      {{- with $root.Values.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      resources:
        requests: {ephemeral-storage: 256Mi}
        limits: {ephemeral-storage: {{ $flow.executors.ephemeralStorage }}}
      securityContext:
        {{- include "idgraph.container.security" $root | nindent 8 }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        - name: tmp
          mountPath: /var/lib/idgraph
          subPath: state
        - name: keys
          mountPath: /etc/idgraph/keys
          readOnly: true
        {{- with include "idgraph.elasticsearch.mount" $root | trim }}{{ . | nindent 8 }}{{ end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ $flow.executors.ephemeralStorage }}
    {{- include "idgraph.keys.volumes" $root | nindent 4 }}
    {{- with include "idgraph.elasticsearch.volume" $root | trim }}{{ . | nindent 4 }}{{ end }}
{{- end }}
