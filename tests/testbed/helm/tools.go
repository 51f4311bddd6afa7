//go:build tools

// Package tools pins the Helm that installs the chart in the tests.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
