//go:build tools

// Package tools pins the Karpenter of the end-to-end tests, with the provider that creates KWOK's nodes.
package tools

import _ "sigs.k8s.io/karpenter/kwok"
