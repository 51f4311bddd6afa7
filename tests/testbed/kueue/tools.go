//go:build tools

// Package tools pins the Kueue whose queues admit function pods in the end-to-end tests. Its chart and its program are of
// the same version.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
