//go:build tools

// Package tools pins the kube-score that checks the chart. It does not compile with newer Kubernetes libraries.
package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
