//go:build tools

// Package tools pins the KWOK that plays the kubelets in the end-to-end tests.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
