// Command inference-load sends inference requests of one row and prints what came back, as JSON.
//
//	inference-load ADDRESS BYTES CONNECTIONS SECONDS REQUESTS-PER-SECOND
//
// Each connection sends one request after the other. With a rate, requests begin at that rate, and
// their latency counts from the time at which they should have begun; 0 is as fast as possible.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

type result struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	Rps      float64 `json:"rps"`
	P50Ms    float64 `json:"p50_ms"`
	P99Ms    float64 `json:"p99_ms"`
}

func number(index int) float64 {
	value, err := strconv.ParseFloat(os.Args[index], 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// request returns the bytes of a binary request with one row.
func request(size int) []byte {
	header := fmt.Sprintf(
		`{"id":"request-1234","inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`,
		size/4, size)
	head := fmt.Sprintf(
		"POST /v2/models/m/infer HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n",
		len(header), len(header)+size)
	return slices.Concat([]byte(head), []byte(header), make([]byte, size))
}

func main() {
	address, size, connections := os.Args[1], int(number(2)), int(number(3))
	duration := time.Duration(number(4) * float64(time.Second))
	rate := number(5)
	body := request(size)
	begin := time.Now()
	end := begin.Add(duration)
	var next struct {
		sync.Mutex
		count int
	}
	// due returns the time at which the next request begins.
	due := func() time.Time {
		if rate == 0 {
			return time.Now()
		}
		next.Lock()
		defer next.Unlock()
		next.count++
		return begin.Add(time.Duration(float64(next.count) / rate * float64(time.Second)))
	}
	latencies := make([][]time.Duration, connections)
	errors := make([]int, connections)
	var workers sync.WaitGroup
	for worker := range connections {
		workers.Go(func() {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				log.Fatal(err)
			}
			defer connection.Close()
			reader := bufio.NewReaderSize(connection, 64*1024)
			for {
				start := due()
				if start.After(end) {
					return
				}
				time.Sleep(time.Until(start))
				if _, err := connection.Write(body); err != nil {
					log.Fatal(err)
				}
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					log.Fatal(err)
				}
				io.Copy(io.Discard, response.Body)
				if response.StatusCode != http.StatusOK {
					errors[worker]++
				}
				latencies[worker] = append(latencies[worker], time.Since(start))
			}
		})
	}
	workers.Wait()
	elapsed := time.Since(begin).Seconds()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	failed := 0
	for _, count := range errors {
		failed += count
	}
	quantile := func(q float64) float64 {
		return float64(all[min(len(all)-1, int(q*float64(len(all))))]) / float64(time.Millisecond)
	}
	json.NewEncoder(os.Stdout).Encode(result{
		Requests: len(all), Errors: failed, Rps: float64(len(all)) / elapsed,
		P50Ms: quantile(0.5), P99Ms: quantile(0.99),
	})
}
