// Command contract holds our wire types against the real ones of kube-scheduler.
//
//	contract requests DIR   writes golden requests, and answers, made from the Go types
//	contract decode KIND    reads an answer on standard input as kube-scheduler would, and
//	                        prints it as the Go type holds it; exit 1 with the reason if it
//	                        does not decode or says something that no field takes
//
// Every file is deterministic: running it again must change nothing.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	extender "k8s.io/kube-scheduler/extender/v1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 2 && arguments[0] == "requests" {
		return writeGolden(arguments[1])
	}
	if len(arguments) == 2 && arguments[0] == "decode" {
		return decode(arguments[1], os.Stdin, os.Stdout)
	}
	return errors.New("usage: contract requests DIR | contract decode KIND")
}

// writeGolden writes one indented JSON file for each golden value.
func writeGolden(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, value := range golden() {
		compact, err := json.Marshal(value) // what kube-scheduler sends
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var readable bytes.Buffer
		if err := json.Indent(&readable, compact, "", "  "); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		readable.WriteByte('\n')
		path := filepath.Join(folder, name+".json")
		if err := os.WriteFile(path, readable.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// decode reads one answer with encoding/json, as kube-scheduler's extender client does, but
// refuses a key that no field takes: kube-scheduler would drop it in silence.
func decode(kind string, input io.Reader, output io.Writer) error {
	targets := map[string]any{
		"ExtenderFilterResult":     &extender.ExtenderFilterResult{},
		"HostPriorityList":         &extender.HostPriorityList{},
		"ExtenderBindingResult":    &extender.ExtenderBindingResult{},
		"ExtenderPreemptionResult": &extender.ExtenderPreemptionResult{},
	}
	target, known := targets[kind]
	if !known {
		return fmt.Errorf("no such kind: %s", kind)
	}
	decoder := json.NewDecoder(input)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: something follows the answer", kind)
	}
	return json.NewEncoder(output).Encode(target)
}
