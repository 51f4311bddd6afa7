// Command do-nothing-server is a model server without a model: it answers an inference request of
// the Open Inference Protocol with one tensor of zeros, as many rows as the request has.
//
//	do-nothing-server LISTEN-ADDRESS BYTES-PER-ROW
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
)

const headerLength = "Inference-Header-Content-Length"

type message struct {
	Inputs []struct {
		Shape []int `json:"shape"`
	} `json:"inputs"`
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func main() {
	rowBytes, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /v2/models/{model}/infer", func(w http.ResponseWriter, r *http.Request) {
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		if int64(cap(*buffer)) < r.ContentLength {
			*buffer = make([]byte, r.ContentLength)
		}
		body := (*buffer)[:r.ContentLength]
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return
		}
		length, err := strconv.Atoi(r.Header.Get(headerLength))
		var request message
		if err != nil || json.Unmarshal(body[:length], &request) != nil {
			http.Error(w, `{"error": "no binary request"}`, http.StatusBadRequest)
			return
		}
		rows := request.Inputs[0].Shape[0]
		size := rows * rowBytes
		header := fmt.Sprintf(
			`{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[%d,%d],"parameters":{"binary_data_size":%d}}]}`,
			rows, rowBytes/4, size)
		w.Header().Set(headerLength, strconv.Itoa(len(header)))
		w.Header().Set("Content-Length", strconv.Itoa(len(header)+size))
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, header)
		w.Write(make([]byte, size))
	})
	http.HandleFunc("GET /v2/models/{model}/ready", func(w http.ResponseWriter, _ *http.Request) {})
	http.HandleFunc("GET /v2/models/{model}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,-1]}],`+
			`"outputs":[{"name":"y","datatype":"FP32","shape":[-1,-1]}]}`)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
