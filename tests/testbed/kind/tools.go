//go:build tools

// Package tools pins the kind that makes clusters of containers for the tests.
package tools

import _ "sigs.k8s.io/kind"
