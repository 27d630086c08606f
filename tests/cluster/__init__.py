"""The chart on a real control plane of Kubernetes, its pods run by a kubelet stand-in: `make test-cluster`."""
