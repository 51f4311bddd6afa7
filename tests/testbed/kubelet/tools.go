//go:build tools

// Package tools pins the kubelet and the kube-proxy of the tests' real node.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
