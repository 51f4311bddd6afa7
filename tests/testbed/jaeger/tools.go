//go:build tools

// Package tools pins the Jaeger that the gateway's spans are sent to.
package tools

import _ "github.com/jaegertracing/jaeger/cmd/all-in-one"
