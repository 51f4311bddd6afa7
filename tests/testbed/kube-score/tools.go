//go:build tools

// Package tools pins the kube-score that the chart is held against.
package tools

import _ "github.com/zegl/kube-score/cmd/kube-score"
