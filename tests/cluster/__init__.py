"""The chart on a real control plane of Kubernetes, its pods run by a kubelet stand-in: `make test-cluster`.

The stand-in has no image, no cgroups and no server of its own. So these are not tried here:

- the image's files: a container sees this machine's, with the test's environment at `/opt/idgraph`;
- limits of memory and disk: nothing is killed or evicted for them; a killed process stands for it;
- network policies, ingress, cert-manager: nothing enforces or makes them;
- autoscaling: nobody measures pods;
- a node that falls silent: both are one process of this test, and Kubernetes waits five minutes before it evicts;
- `kubectl exec`, `logs` and `port-forward`, which ask the kubelet: tests run commands in a container by the stand-in.
"""
