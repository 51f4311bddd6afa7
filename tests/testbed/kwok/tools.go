//go:build tools

// Package tools pins the KWOK that simulates kubelets in the end-to-end tests. It needs Kubernetes libraries of 0.33.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
