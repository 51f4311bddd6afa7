//go:build tools

// Package tools pins the kubelet of the tests' real node.
package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
